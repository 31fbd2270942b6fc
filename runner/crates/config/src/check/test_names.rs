//! Names of tests: resolves the names in `[[test]]`s to steps, queues, sinks and processors.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog::What;
use super::lookups::{self, TableScope};
use super::resolve::{End, Wired, Wiring, short};
use crate::diagnostic::{Diagnostic, SourceSpan};
use crate::model::test_case::{Expectations, ExpectedJobs, LaterJobs, Mock, MockPlace, TestCase};
use crate::model::{ProbeConfig, Processor, SinkKind};
use crate::parse::context::Text;
use crate::parse::named_table::NamedEntry;
use crate::sections::pipeline::PipelineDeclaration;
use crate::sections::shared_tables::SharedTables;
use crate::sections::test::TestDeclaration;
use crate::sections::test_expect::AttemptsDeclaration;
use crate::sections::test_jobs::GivenJobs;
use crate::sections::test_mock::{MockDeclaration, is_script};
use tidegate_model::Address;
use tidegate_model::suggest::{did_you_mean, listed};

/// The tests of all pipelines, with a diagnostic for each unknown name. Tests of an unknown step are left out.
pub(crate) fn resolve(
    pipelines: &[Arc<PipelineDeclaration>],
    wiring: &Wiring<'_>,
    shared: &SharedTables,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<TestCase> {
    let mut tests = Vec::new();
    for pipeline in pipelines {
        for declared in &pipeline.tests {
            let scope = TestScope::of(pipelines, (pipeline, declared), wiring, shared);
            let found = scope.map(|mut scope| (scope.test(declared), scope.diagnostics));
            match found {
                Ok((test, unknown)) => {
                    tests.push(test);
                    diagnostics.extend(unknown);
                }
                Err(unknown) => diagnostics.push(*unknown),
            }
        }
    }
    tests
}

/// The steps that one test runs.
struct TestScope<'s, 'd> {
    pipelines: &'s [Arc<PipelineDeclaration>],
    pipeline: &'s PipelineDeclaration,
    wiring: &'s Wiring<'d>,
    shared: &'s SharedTables,
    /// The only step; `None`: the whole pipeline.
    only: Option<&'s Wired<'d>>,
    steps: Vec<&'s Wired<'d>>,
    diagnostics: Vec<Diagnostic>,
}

impl<'s, 'd> TestScope<'s, 'd> {
    fn of(
        pipelines: &'s [Arc<PipelineDeclaration>],
        (pipeline, declared): (&'s PipelineDeclaration, &TestDeclaration),
        wiring: &'s Wiring<'d>,
        shared: &'s SharedTables,
    ) -> Result<Self, Box<Diagnostic>> {
        let steps = wiring.steps.iter().filter(|wired| wired.pipeline.name == pipeline.name);
        let mut steps: Vec<&Wired<'d>> = steps.collect();
        let mut only: Option<&Wired<'_>> = None;
        if let Some(step) = &declared.step {
            let names: Vec<&str> = steps.iter().map(|wired| wired.step.name.value.as_str()).collect();
            let is_named = |wired: &&Wired<'_>| wired.step.name.value.as_str() == step.value;
            only = steps.iter().copied().find(|wired| is_named(wired));
            let Some(only) = only else { return Err(Box::new(unknown("step", step, &names))) };
            // A join by key runs with the step that finds its tuples.
            let finds = |wired: &&Wired<'_>| {
                let joins = wired.step.joins.as_ref();
                only.step.tuples.is_some() && joins.is_some_and(|join| join.reader == only.step.name.value)
            };
            steps.retain(|wired| is_named(wired) || finds(wired));
        }
        Ok(Self { pipelines, pipeline, wiring, shared, only, steps, diagnostics: Vec::new() })
    }

    fn test(&mut self, declared: &TestDeclaration) -> TestCase {
        TestCase {
            name: declared.name.value.clone(),
            pipeline: self.pipeline.name.clone(),
            file: self.pipeline.file.to_path_buf(),
            line: declared.line,
            step: self.only.map(Wired::address),
            given: self.given(&declared.given),
            later: declared
                .later
                .iter()
                .map(|(after, given)| LaterJobs { after: *after, given: self.given(given) })
                .collect(),
            at: declared.at,
            lasts: declared.lasts,
            mocks: declared.mocks.iter().filter_map(|mock| self.mock(mock)).collect(),
            expect: self.expect(declared),
        }
    }

    fn given(&mut self, given: &GivenJobs) -> Vec<(Address, Vec<String>)> {
        match given {
            GivenJobs::None => Vec::new(),
            GivenJobs::Only(place, jobs) => {
                let inputs = self.inputs();
                match &inputs[..] {
                    [(_, address)] if self.only.is_some() => vec![(address.clone(), jobs.clone())],
                    _ => {
                        let message = match self.only {
                            Some(_) => "`given` must name the input of its jobs, since the step has several",
                            None => "`given` must name the source or queue of its jobs, without a `step`",
                        };
                        let names = names_of(inputs);
                        let name = names.first().map_or("NAME", String::as_str);
                        let help = format!("write `given = {{ {name} = [ … ] }}`");
                        self.diagnostics.push(Diagnostic::error_at(place, message).help(help));
                        Vec::new()
                    }
                }
            }
            GivenJobs::ByName(lists) => {
                let mut given = Vec::new();
                for (name, jobs) in lists {
                    let mut inputs = self.inputs();
                    inputs.extend(self.tables());
                    let found = inputs.iter().find(|(known, address)| self.is_named(name, known, address));
                    match found {
                        Some((_, address)) => given.push((address.clone(), jobs.clone())),
                        None => self.report_unknown("input", name, inputs),
                    }
                }
                given
            }
        }
    }

    /// The inputs of the steps, each with its binding, or otherwise its name.
    fn inputs(&self) -> Vec<(String, Address)> {
        let mut inputs = Vec::new();
        let is_given = |wired: &&&Wired<'_>| self.only.is_none() || wired.step.tuples.is_none();
        for (binding, end) in self.steps.iter().filter(is_given).flat_map(|wired| &wired.inputs) {
            let bound = self.only.is_some() && !binding.is_empty();
            let name = if bound { binding.clone() } else { short(&end.address, &self.pipeline.name) };
            inputs.push((name, end.address.clone()));
        }
        inputs.sort();
        inputs.dedup();
        inputs
    }

    /// The queues of the tables that the scripts of the test read, by name.
    fn tables(&self) -> Vec<(String, Address)> {
        let (own, shared) = (&self.pipeline.shelves.tables, &self.shared.tables);
        let scope = TableScope { home: Some(&self.pipeline.name), own, shared };
        let monitors = self.steps.iter().filter_map(|wired| wired.step.monitor.as_ref());
        let probes = monitors.map(|declared| &declared.monitor.inquiry);
        let gates = self.gates();
        let probes = probes.chain(gates.iter().filter_map(|gate| gate.value.as_ref()));
        let queues: BTreeSet<Address> = probes
            .flat_map(|probe| lookups::queues_of_probe(probe, scope))
            .chain(self.steps.iter().flat_map(|wired| wired.looks_up.iter().cloned()))
            .collect();
        let named = |queue: Address| (short(&queue, &self.pipeline.name), queue);
        queues.into_iter().map(named).collect()
    }

    /// The queues and sinks that the steps write to, by name.
    fn outputs(&self) -> Vec<(String, Address)> {
        let ends = self.steps.iter().flat_map(|wired| wired.gives());
        let named = |end: &End| (short(&end.address, &self.pipeline.name), end.address.clone());
        let outputs: BTreeSet<_> = ends.map(named).collect();
        outputs.into_iter().collect()
    }

    fn is_named(&self, name: &Text, known: &str, address: &Address) -> bool {
        name.value == *known
            || name.value == short(address, &self.pipeline.name)
            || name.value == address.to_string()
    }

    /// Reports an unknown name. Names that must not be shown are not suggested.
    fn report_unknown(&mut self, what: &str, name: &Text, known: Vec<(String, Address)>) {
        let shown = known.into_iter().filter(|(_, address)| !self.wiring.is_secret(address));
        let names = names_of(shown.collect());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bindings = self.only.into_iter().flat_map(|wired| &wired.outputs);
        let bound = bindings.filter(|(binding, _)| what == "output" && *binding == name.value);
        let target = bound.map(|(_, end)| self.wiring.quoted(&end.address, &self.pipeline.name)).next();
        let diagnostic = match target {
            Some(target) => {
                let message =
                    format!("`expect` must name {target}, the target of the output {}", name.quoted());
                Diagnostic::error_at(&name.place, message).help(format!("write {target}"))
            }
            None => unknown(what, name, &names),
        };
        self.diagnostics.push(diagnostic);
    }

    fn expect(&mut self, declared: &TestDeclaration) -> Expectations {
        let expect = &declared.expect;
        let mut outputs = Vec::new();
        for (name, jobs) in &expect.outputs {
            let known = self.outputs();
            let found = known.iter().find(|(known, address)| self.is_named(name, known, address));
            match found {
                Some((_, address)) => {
                    let (address, name, jobs) = (address.clone(), name.value.clone(), jobs.clone());
                    outputs.push(ExpectedJobs { address, name, jobs });
                }
                None => self.report_unknown("output", name, known),
            }
        }
        let has_errors = self.steps.iter().any(|wired| wired.errors.is_some());
        if let Some((place, _)) = expect.errors.as_ref().filter(|_| !has_errors) {
            let message = "`errors` has no effect: no step of the test has an error queue";
            let help = "expect the stop of the step instead: `halted = \"…\"`";
            self.diagnostics.push(Diagnostic::error_at(place, message).help(help));
        }
        let attempts = match &expect.attempts {
            None => Vec::new(),
            Some(AttemptsDeclaration::Only(place, attempts)) => match self.only {
                Some(step) => vec![(step.address(), attempts.clone())],
                None => {
                    self.refuse_lone_attempts(place);
                    Vec::new()
                }
            },
            Some(AttemptsDeclaration::ByStep(by_step)) => {
                let found = by_step.iter().map(|(name, attempts)| Some((self.step(name)?, attempts.clone())));
                found.collect::<Vec<_>>().into_iter().flatten().collect()
            }
        };
        Expectations {
            outputs,
            errors: expect.errors.as_ref().map(|(_, errors)| errors.clone()),
            attempts,
            elapsed: expect.elapsed.clone(),
            halted: expect.halted.clone(),
            dropped: expect.dropped.clone(),
            waiting: expect.waiting.clone(),
        }
    }

    fn refuse_lone_attempts(&mut self, place: &SourceSpan) {
        let message = "`attempts` must name its step, since the test has no `step`";
        let name = self.steps.first().map_or("NAME", |wired| wired.step.name.value.as_str());
        let help = format!("write `attempts = {{ {name} = 2 }}`");
        self.diagnostics.push(Diagnostic::error_at(place, message).help(help));
    }

    /// The step of this name; an unknown one is reported.
    fn step(&mut self, name: &Text) -> Option<Address> {
        let found = self.steps.iter().find(|wired| wired.step.name.value.as_str() == name.value);
        if found.is_none() {
            let names: Vec<&str> = self.steps.iter().map(|wired| wired.step.name.value.as_str()).collect();
            self.diagnostics.push(unknown("step", name, &names));
        }
        found.map(|wired| wired.address())
    }

    fn mock(&mut self, mock: &MockDeclaration) -> Option<Mock> {
        if let Some((_, sink)) = self.http_sinks().into_iter().find(|(name, _)| *name == mock.processor.value)
        {
            let place = MockPlace::Sink(sink);
            let (processor, answers) = (mock.processor.value.clone(), mock.answers.clone());
            return Some(Mock { place, processor, answers, line: mock.line });
        }
        let (place, processors) = self.mocked(mock)?;
        let mut names: Vec<String> = processors.iter().filter_map(Processor::mock_name).collect();
        if mock.owner.is_none() {
            names.extend(self.http_sinks().into_iter().map(|(name, _)| name));
        }
        let name = &mock.processor;
        if !names.contains(&name.value) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let diagnostic = if is_script(name) {
                let message = format!("{} cannot have a mock: scripts run in tests", name.quoted());
                Diagnostic::error_at(&name.place, message)
            } else if names.is_empty() {
                let message =
                    format!("{} has no effect: the test runs no plugin or built-in here", name.quoted());
                Diagnostic::error_at(&name.place, message)
            } else {
                unknown("processor", name, &names)
            };
            self.diagnostics.push(diagnostic);
            return None;
        }
        let (processor, answers) = (name.value.clone(), mock.answers.clone());
        Some(Mock { place, processor, answers, line: mock.line })
    }

    /// The place of a mock, with the processors there; an unknown place is reported.
    fn mocked(&mut self, mock: &MockDeclaration) -> Option<(MockPlace, Vec<Processor>)> {
        let run = |probe: &ProbeConfig| probe.run.clone();
        let monitor = |wired: &Wired<'_>| {
            wired.step.monitor.as_ref().map(|it| run(&it.monitor.inquiry)).unwrap_or_default()
        };
        let Some(owner) = &mock.owner else {
            let mut all = Vec::new();
            for wired in &self.steps {
                all.extend(wired.step.processors.iter().cloned());
                all.extend(monitor(wired));
            }
            all.extend(self.gates().into_iter().filter_map(|gate| gate.value.as_ref()).flat_map(run));
            return Some((MockPlace::Anywhere, all));
        };
        if let Some(wired) = self.steps.iter().find(|wired| wired.step.name.value.as_str() == owner.value) {
            let name = wired.step.name.value.clone();
            return Some(if mock.of_monitor {
                (MockPlace::Monitor(name), monitor(wired))
            } else {
                (MockPlace::Step(name), wired.step.processors.clone())
            });
        }
        let gates = self.gates();
        if let Some(gate) = gates.iter().find(|gate| gate.name.value.as_str() == owner.value) {
            let processors = gate.value.as_ref().map(run).unwrap_or_default();
            return Some((MockPlace::Gate(gate.name.value.clone()), processors));
        }
        let steps = self.steps.iter().map(|wired| wired.step.name.value.as_str());
        let names: Vec<&str> = steps.chain(gates.iter().map(|gate| gate.name.value.as_str())).collect();
        let diagnostic = unknown("step or gate", owner, &names);
        self.diagnostics.push(diagnostic);
        None
    }

    /// The HTTP sinks of the steps, as `sink:NAME`.
    fn http_sinks(&self) -> Vec<(String, Address)> {
        let named = |end: &End| {
            let pipeline = self.pipelines.iter().find(|pipeline| pipeline.name == end.address.pipeline)?;
            let sink = pipeline.sinks.iter().find(|sink| sink.name.value == end.address.name)?;
            let is_http = matches!(sink.kind, Some(SinkKind::Http(_)));
            let name = || format!("sink:{}", short(&end.address, &self.pipeline.name));
            is_http.then(|| (name(), end.address.clone()))
        };
        let ends = self.steps.iter().flat_map(|wired| wired.gives());
        ends.filter(|end| end.what == What::Sink).filter_map(named).collect()
    }

    /// The gates of the steps.
    fn gates(&self) -> Vec<&'s NamedEntry<ProbeConfig>> {
        let own = &self.pipeline.shelves.gates;
        let gates = self.steps.iter().filter_map(|wired| wired.step.gate.as_ref());
        gates.filter_map(|gate| gate.entry(own, &self.shared.gates)).collect()
    }
}

fn names_of(named: Vec<(String, Address)>) -> Vec<String> {
    named.into_iter().map(|(name, _)| name).collect()
}

/// The diagnostic of an unknown name in a test.
fn unknown(what: &str, name: &Text, names: &[&str]) -> Diagnostic {
    let near = did_you_mean(&name.value, names.iter().copied());
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    let help = near.or_else(|| match unique.len() {
        0 => None,
        1 => Some(format!("the only {what} is {}", listed(unique, "and"))),
        _ => Some(format!("the {what}s are {}", listed(unique, "and"))),
    });
    Diagnostic::error_at(&name.place, format!("{what} {} of the test is unknown", name.quoted()))
        .help_if(help)
}
