//! `City`: the table of cities, and distances on the globe.

const TABLE: &str = include_str!("../cities.tsv");
const EARTH_KM: f64 = 6371.0;

#[derive(Debug)]
pub(crate) struct Cities(Vec<City>);

#[derive(Debug)]
pub(crate) struct City {
    pub(crate) name: &'static str,
    /// ISO 3166, two letters.
    pub(crate) country: &'static str,
    /// Name in the tz database.
    pub(crate) zone: &'static str,
    /// Unit vector from the centre of the Earth: the nearest city has the largest product.
    towards: [f64; 3],
}

impl Cities {
    pub(crate) fn read() -> Self {
        Self(TABLE.lines().filter_map(City::read).collect())
    }

    /// The nearest city, and its distance in kilometres.
    pub(crate) fn nearest(&self, lat: f64, lon: f64) -> (&City, f64) {
        let here = towards(lat, lon);
        let product = |city: &City| city.towards.iter().zip(here).map(|(a, b)| a * b).sum::<f64>();
        let mut best = (&self.0[0], f64::MIN);
        for city in &self.0 {
            let product = product(city);
            if product > best.1 {
                best = (city, product);
            }
        }
        (best.0, best.1.clamp(-1.0, 1.0).acos() * EARTH_KM)
    }
}

impl City {
    fn read(line: &'static str) -> Option<Self> {
        let mut fields = line.split('\t');
        let (name, country) = (fields.next()?, fields.next()?);
        let (lat, lon) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { name, country, zone: fields.next()?, towards: towards(lat, lon) })
    }
}

fn towards(lat: f64, lon: f64) -> [f64; 3] {
    let (lat, lon) = (lat.to_radians(), lon.to_radians());
    [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
}

#[cfg(test)]
mod tests {
    use super::{Cities, TABLE};

    #[test]
    fn every_line_is_a_city() {
        let cities = Cities::read();
        assert_eq!(cities.0.len(), TABLE.lines().count());
        assert_eq!(cities.0.len(), 418);
    }
}
