//! Tests of `Block`: jobs are read back unchanged, and damaged bytes are refused.

use proptest::prelude::*;

use super::*;

fn payloads(jobs: &[Vec<u8>]) -> Payloads {
    jobs.iter().map(|job| &job[..]).collect()
}

fn encode(jobs: &[Vec<u8>]) -> Block {
    Block::encode(&payloads(jobs), Details::default())
}

proptest! {
    #[test]
    fn a_body_of_noise_is_wrong_or_harmless(
        body in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..60),
        jobs in 0_usize..5, flags in 0_u8..4, skip in 0_usize..3,
    ) {
        let checksum = XxHash3_64::oneshot(&body);
        let (raw_len, body_len) = (body.len(), body.len());
        let header = SectionHeader { flags: flags << 1, jobs, raw_len, body_len, checksum };
        let mut out = DecodedJobs::with_origins();
        let read = header.read(&body, skip, ReadBounds { jobs: 3, bytes: 30 }, &mut out);
        prop_assert_eq!(out.origins.unwrap().len(), out.payloads.len());
        prop_assert!(out.carried.is_none_or(|carried| carried.len() == out.payloads.len()));
        prop_assert!(read.is_ok() || out.payloads.is_empty());
    }
}

#[test]
fn jobs_are_compressed_where_that_pays() {
    let alike = encode(&vec![br#"{"kind":"earthquake","magnitude":4.5}"#.to_vec(); 100]);
    assert!(alike.stored_len() < 1_000, "{}", alike.stored_len());
    let noise: Vec<u8> =
        (0..1_000_u32).flat_map(|n| XxHash3_64::oneshot(&n.to_le_bytes()).to_le_bytes()).collect();
    assert_eq!(encode(&[noise]).stored_len(), 8_000 + 2);
}

#[test]
fn many_jobs_are_cut_into_sections_and_a_large_one_is_not() {
    let many = encode(&vec![vec![b'x'; 1_000]; 1_000]);
    assert_eq!(many.sections().len(), 32);
    assert!(many.sections().iter().all(|section| section.raw_len() <= SECTION_RAW_BYTES_MAX));
    assert_eq!(encode(&[vec![b'x'; 1 << 20]]).sections().len(), 1);
}

#[test]
fn columns_count_for_the_size_of_a_section() {
    let (jobs, carried) = (payloads(&vec![vec![b'x'; 10]; 2_000]), payloads(&vec![vec![b'y'; 990]; 2_000]));
    let block = Block::encode(&jobs, Details { carried: Some(&carried), ..Details::default() });
    assert_eq!(block.sections().len(), 63);
    assert!(block.sections().iter().all(|section| section.raw_len() <= SECTION_RAW_BYTES_MAX));
}

#[test]
fn a_column_that_says_nothing_is_not_there() {
    let jobs = payloads(&[b"1".to_vec(), b"2".to_vec()]);
    let carried = payloads(&[Vec::new(), Vec::new()]);
    let block = Block::encode(&jobs, Details { carried: Some(&carried), ..Details::default() });
    assert_eq!(block.stored_len(), 4);
}
