//! `Nearest`: adds the nearest city to a job with a place on Earth.
//!
//! `run = "plugin:geo"`. The table has the 418 cities of the time zones (`cities.tsv`, from the tz database,
//! public domain): enough to identify the country and region of a place.

mod cities;

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_plugin::{Context, Failure, Job, Outlet, PluginStep, Value};

use cities::Cities;

/// `config` of the step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The field with the latitude, in degrees.
    pub lat: String,
    /// The field with the longitude, in degrees.
    pub lon: String,
    /// The field that is added: `{"city", "country", "zone", "km"}`, or null.
    pub into: String,
    /// Cities that are further away do not count.
    #[schemars(range(min = 1.0))]
    pub within_km: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        let [lat, lon, into] = ["lat", "lon", "near"].map(str::to_owned);
        Self { lat, lon, into, within_km: None }
    }
}

/// The step.
#[derive(Debug)]
pub struct Nearest {
    config: Config,
    cities: Cities,
}

impl PluginStep for Nearest {
    const NAME: &'static str = "nearest";
    const DESCRIPTION: &'static str = "adds the city that is nearest to the job's place";
    type Config = Config;

    fn schema() -> Option<String> {
        tidegate_plugin::schema_of::<Config>()
    }

    fn create(config: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self { config, cities: Cities::read() })
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        let mut value: Value = job.parse()?;
        let Config { lat, lon, into, within_km } = &self.config;
        let (lat, lon) = (degrees(&value, lat, -90.0..=90.0)?, degrees(&value, lon, -180.0..=180.0)?);
        let (city, km) = self.cities.nearest(lat, lon);
        let near = if within_km.is_none_or(|within| km <= within) {
            let km = (km * 10.0).round() / 10.0;
            [
                ("city", city.name.into()),
                ("country", city.country.into()),
                ("zone", city.zone.into()),
                ("km", km.into()),
            ]
            .into_iter()
            .map(|(key, value): (&str, Value)| (key.to_owned(), value))
            .collect()
        } else {
            Value::Null
        };
        value[into.as_str()] = near;
        outlet.give(&value)
    }
}

fn degrees(job: &Value, field: &str, range: RangeInclusive<f64>) -> Result<f64, Failure> {
    match job.get(field).and_then(Value::as_f64) {
        Some(degrees) if range.contains(&degrees) => Ok(degrees),
        Some(degrees) => Err(Failure::reject(format_args!("`{field}` of {degrees} is out of range"))),
        None => Err(Failure::reject(format_args!("the job has no number `{field}`"))),
    }
}

tidegate_plugin::export_plugin!(Nearest);

#[cfg(test)]
mod tests {
    use tidegate_plugin::testing::Harness;

    use super::Nearest;

    fn near(job: &str) -> String {
        Harness::<Nearest>::new("{}").unwrap().run(job).unwrap().remove(0)
    }

    #[test]
    fn the_nearest_city_is_added() {
        assert_eq!(
            near(r#"{"id":1,"lat":52.5,"lon":13.4}"#),
            r#"{"id":1,"lat":52.5,"lon":13.4,"near":{"city":"Berlin","country":"DE","km":2.0,"zone":"Europe/Berlin"}}"#
        );
    }

    #[test]
    fn the_way_over_the_date_line_is_short() {
        assert!(near(r#"{"lat":-17.0,"lon":-179.9}"#).contains("Fiji"));
    }

    #[test]
    fn a_city_too_far_away_is_none() {
        let mut step = Harness::<Nearest>::new(r#"{"within_km": 100}"#).unwrap();
        assert_eq!(step.run(r#"{"lat":0,"lon":-140}"#).unwrap(), [r#"{"lat":0,"lon":-140,"near":null}"#]);
    }

    #[test]
    fn what_is_no_place_is_rejected() {
        let mut step = Harness::<Nearest>::new("{}").unwrap();
        for (job, why) in [
            (r#"{"lat":91,"lon":0}"#, "`lat` of 91 is out of range"),
            (r#"{"lat":1,"lon":"x"}"#, "the job has no number `lon`"),
            ("[]", "the job has no number `lat`"),
        ] {
            assert_eq!(step.run(job).unwrap_err().message, why);
        }
    }
}
