//! `Frozen`: shared large constants, so that reading one entry of a table costs the same for any size.
//!
//! Rhai copies a constant, and `ctx.config`, at each access by a script. So a constant with more than
//! [`PLAIN_MAX`] values is put behind a reference count, and the script gets another reference. For the
//! script it is a map or an array with all their functions. A change is made to a copy, so that no change
//! reaches another job. The copy of a map is a plain one.
//!
//! The functions that read one entry are implemented here. Every other function gets a plain copy and is
//! passed to Rhai's, which visits the whole value in any case.

use std::any::TypeId;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use rhai::{
    Array, Dynamic, Engine, EvalAltResult, FnPtr, FuncRegistration, INT, ImmutableString, Map, Module,
    NativeCallContext, Position, RhaiFunc, RhaiNativeFunc, Variant,
};
use tidegate_plugin::json::MAX_DEPTH;

use super::indexed_map::IndexedMap;
use super::number::BigNumber;

/// Maximum number of nested values of a constant that is copied.
const PLAIN_MAX: usize = 64;

/// A map or an array that is shared until it is changed.
#[derive(Debug)]
pub(crate) struct Frozen<T>(Rc<T>);

/// Another reference, whether or not the value can be copied.
impl<T> Clone for Frozen<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

type Answer<T> = Result<T, Box<EvalAltResult>>;

thread_local! {
    /// Number of values that were frozen on this thread.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// Number of values that this thread has put behind a reference count so far.
pub(crate) fn made() -> u64 {
    MADE.get()
}

fn share<T>(value: T) -> Dynamic
where
    Frozen<T>: Variant + Clone,
{
    MADE.set(MADE.get() + 1);
    Dynamic::from(Frozen(Rc::new(value)))
}

/// The same value, with shared maps and arrays in place of large ones.
pub(crate) fn freeze(value: Dynamic) -> Dynamic {
    frozen(value, 0).0
}

/// The value, and the number of values in a copy of it.
fn frozen(value: Dynamic, depth: usize) -> (Dynamic, usize) {
    let value = value.flatten();
    // Nesting beyond that of any job is left unchanged, since scripts have no tables there.
    if depth == MAX_DEPTH {
        return (value, 1);
    }
    let mut size = 1;
    let mut inner = |value: &mut Dynamic| {
        let (inner, inner_size) = frozen(std::mem::take(value), depth + 1);
        *value = inner;
        size += inner_size;
    };
    if value.is_map() {
        let mut map = value.cast::<Map>();
        map.values_mut().for_each(&mut inner);
        // Rhai calls functions in a map by their keys, but only in plain maps.
        let is_plain = size <= PLAIN_MAX || map.values().any(Dynamic::is_fnptr);
        if is_plain {
            return (map.into(), size);
        }
        return match IndexedMap::new(map) {
            Ok(map) => (share(map), 1),
            Err(map) => (map.into(), size),
        };
    }
    if value.is_array() {
        let mut array = value.cast::<Array>();
        array.iter_mut().for_each(&mut inner);
        return if size > PLAIN_MAX { (share(array), 1) } else { (array.into(), size) };
    }
    (value, 1)
}

/// Whether jobs can share `value`: functions with captured variables cannot be shared.
pub(crate) fn is_data(value: &Dynamic) -> bool {
    is_data_at(value, 0)
}

fn is_data_at(value: &Dynamic, depth: usize) -> bool {
    if depth == MAX_DEPTH {
        return false;
    }
    if let Ok(map) = value.as_map_ref() {
        return map.values().all(|value| is_data_at(value, depth + 1));
    }
    if let Ok(array) = value.as_array_ref() {
        return array.iter().all(|value| is_data_at(value, depth + 1));
    }
    value.read_lock::<FnPtr>().is_none_or(|function| !function.is_curried())
}

/// The shared map in `value`.
pub(crate) fn map(value: &Dynamic) -> Option<Rc<IndexedMap>> {
    value.read_lock::<Frozen<IndexedMap>>().map(|frozen| Rc::clone(&frozen.0))
}

/// The shared array in `value`.
pub(crate) fn array(value: &Dynamic) -> Option<Rc<Array>> {
    value.read_lock::<Frozen<Array>>().map(|frozen| Rc::clone(&frozen.0))
}

/// `value` with a plain map or array in place of a shared one; nested values stay shared.
pub(crate) fn plain(value: &Dynamic) -> Cow<'_, Dynamic> {
    match thawed(value) {
        Some(copy) => Cow::Owned(copy),
        None => Cow::Borrowed(value),
    }
}

/// As [`plain`], for an owned value.
pub(crate) fn into_plain(value: Dynamic) -> Dynamic {
    thawed(&value).unwrap_or(value)
}

fn thawed(value: &Dynamic) -> Option<Dynamic> {
    if let Some(map) = map(value) {
        return Some(Dynamic::from_map(map.to_map()));
    }
    array(value).map(|array| Dynamic::from_array((*array).clone()))
}

thread_local! {
    /// The functions of shared maps and arrays.
    static FUNCTIONS: OnceCell<Rc<Module>> = const { OnceCell::new() };
}

/// To be called last: registers all functions of `engine` on maps and arrays for shared ones.
pub(crate) fn register(engine: &mut Engine) {
    let functions =
        FUNCTIONS.with(|functions| Rc::clone(functions.get_or_init(|| Rc::new(like_plain(engine)))));
    engine.register_global_module(functions);
}

/// The functions of `engine` on maps and arrays, for shared ones.
fn like_plain(engine: &Engine) -> Module {
    let mut module = Module::new();
    module.set_custom_type::<Frozen<IndexedMap>>("map").set_custom_type::<Frozen<Array>>("array");
    let functions: BTreeSet<(String, Vec<TypeId>)> = engine
        .collect_fn_metadata(
            None,
            |info| Some((info.metadata.name.to_string(), info.metadata.param_types.to_vec())),
            true,
        )
        .into_iter()
        .collect();
    for (name, kinds) in functions {
        for kinds in with_shared(&kinds) {
            let function = name.clone();
            let func =
                Rc::new(
                    move |call: Option<NativeCallContext<'_>>, arguments: &mut [&mut Dynamic]| match call {
                        Some(call) => on_plain(&function, &call, arguments),
                        None => Ok(Dynamic::UNIT),
                    },
                );
            let function = RhaiFunc::Method { func, has_context: true, is_pure: true, is_volatile: false };
            FuncRegistration::new(name.as_str()).set_into_module_raw(&mut module, kinds, function);
        }
    }
    set_maps(&mut module);
    set_arrays(&mut module);
    set_additions(&mut module);
    module
}

/// `array += table`. Rhai appends any other value to an array as one element. An engine that uses this must
/// disable fast operators.
fn set_additions(module: &mut Module) {
    let add = |array: &mut Array, table: Frozen<Array>| array.extend(table.0.iter().cloned());
    FuncRegistration::new("+=").in_global_namespace().set_into_module(module, add);
}

/// All combinations of shared and plain types.
fn with_shared(kinds: &[TypeId]) -> Vec<Vec<TypeId>> {
    let shared = |kind| match kind {
        kind if kind == TypeId::of::<Map>() => Some(TypeId::of::<Frozen<IndexedMap>>()),
        kind if kind == TypeId::of::<Array>() => Some(TypeId::of::<Frozen<Array>>()),
        _ => None,
    };
    let mut ways = vec![Vec::new()];
    for &kind in kinds {
        let choices = [Some(kind), shared(kind)];
        ways = ways
            .iter()
            .flat_map(|way: &Vec<TypeId>| {
                choices.iter().flatten().map(|kind| way.iter().copied().chain([*kind]).collect())
            })
            .collect();
    }
    // The first combination has no shared type.
    ways.split_off(1)
}

/// Calls a function of maps and arrays on copies of shared ones.
fn on_plain(name: &str, call: &NativeCallContext<'_>, arguments: &mut [&mut Dynamic]) -> Answer<Dynamic> {
    let Some((first, others)) = arguments.split_first_mut() else { return Ok(Dynamic::UNIT) };
    for argument in others.iter_mut() {
        if let Some(copy) = thawed(argument) {
            **argument = copy;
        }
    }
    let run = |first: &mut Dynamic, others: &mut [&mut Dynamic]| {
        let mut arguments: Vec<&mut Dynamic> = Vec::with_capacity(1 + others.len());
        arguments.push(first);
        arguments.extend(others.iter_mut().map(|argument| &mut **argument));
        call.call_native_fn_raw(name, true, &mut arguments)
    };
    let Some(copy) = thawed(first) else { return run(first, others) };
    // Rhai itself reports whether the function changes its receiver.
    match run(&mut copy.into_read_only(), others) {
        Err(error) if matches!(*error, EvalAltResult::ErrorNonPureMethodCallOnConstant(..)) => {
            let Some(mut copy) = thawed(first).filter(|_| !first.is_read_only()) else { return Err(error) };
            let answer = run(&mut copy, others)?;
            **first = copy;
            Ok(answer)
        }
        answer => answer,
    }
}

fn set_maps(module: &mut Module) {
    type Table = Frozen<IndexedMap>;
    set(module, "len", |table: &mut Table| length(table.0.len()));
    set(module, "is_empty", |table: &mut Table| table.0.is_empty());
    set(module, "contains", |table: &mut Table, key: ImmutableString| table.0.contains_key(key.as_str()));
    set(module, "get", |table: &mut Table, key: ImmutableString| {
        table.0.get(key.as_str()).unwrap_or(Dynamic::UNIT)
    });
    FuncRegistration::new_index_getter().with_purity(true).set_into_module(
        module,
        |table: &mut Table, key: ImmutableString| -> Answer<Dynamic> {
            let missing = || EvalAltResult::ErrorPropertyNotFound(key.to_string(), Position::NONE).into();
            table.0.get(key.as_str()).ok_or_else(missing)
        },
    );
    // Otherwise Rhai interprets the field `tag` as the tag of a value.
    FuncRegistration::new_getter("tag").with_purity(true).set_into_module(
        module,
        |table: &mut Table| -> Answer<Dynamic> {
            let missing = || EvalAltResult::ErrorPropertyNotFound("tag".to_owned(), Position::NONE).into();
            table.0.get("tag").ok_or_else(missing)
        },
    );
    let set_tag = |_: Option<NativeCallContext<'_>>, arguments: &mut [&mut Dynamic]| {
        let [table, value] = arguments else { return Ok(Dynamic::UNIT) };
        insert(table, "tag", std::mem::take(*value));
        Ok(Dynamic::UNIT)
    };
    let function =
        RhaiFunc::Method { func: Rc::new(set_tag), has_context: false, is_pure: false, is_volatile: false };
    let kinds = [TypeId::of::<Table>(), TypeId::of::<Dynamic>()];
    FuncRegistration::new("set$tag").in_global_namespace().set_into_module_raw(module, kinds, function);
    set_entries(module, TypeId::of::<Table>(), TypeId::of::<ImmutableString>(), |table, key, value| {
        if let Ok(key) = key.as_immutable_string_ref() {
            insert(table, &key, value);
        }
        Ok(())
    });
    refuse_other_keys::<IndexedMap>(module, "string");
}

/// Sets an entry of a shared map, which becomes a plain one.
fn insert(table: &mut Dynamic, key: &str, value: Dynamic) {
    let Some(map) = map(table) else { return };
    let mut map = map.to_map();
    map.insert(key.into(), value);
    *table = map.into();
}

fn set_arrays(module: &mut Module) {
    type Table = Frozen<Array>;
    module.set_iterable::<Table>();
    set(module, "len", |table: &mut Table| length(table.0.len()));
    set(module, "get$len", |table: &mut Table| length(table.0.len()));
    set(module, "is_empty", |table: &mut Table| table.0.is_empty());
    set(module, "get$is_empty", |table: &mut Table| table.0.is_empty());
    set(module, "get", |table: &mut Table, index: INT| element(&table.0, index));
    // Rhai's own function is not marked as pure, and so cannot be called on a constant.
    set(module, "get", |array: &mut Array, index: INT| element(array, index));
    FuncRegistration::new_index_getter().with_purity(true).set_into_module(
        module,
        |table: &mut Table, index: INT| -> Answer<Dynamic> {
            let place = place(table.0.len(), index);
            place
                .and_then(|place| table.0.get(place))
                .cloned()
                .ok_or_else(|| out_of_bounds(table, index).into())
        },
    );
    set_entries(module, TypeId::of::<Table>(), TypeId::of::<INT>(), |table, index, value| {
        let (Some(mut table), Ok(index)) = (table.write_lock::<Table>(), index.as_int()) else {
            return Ok(());
        };
        let place = place(table.0.len(), index).ok_or_else(|| out_of_bounds(&table, index))?;
        Rc::make_mut(&mut table.0)[place] = value;
        Ok(())
    });
    refuse_other_keys::<Array>(module, "i64");
}

/// Sets the entries of tables. Rhai also does that after a method call on one, which may have changed it. An
/// equal value is left unchanged, so that no copy is made, and a constant can be read this way.
fn set_entries(
    module: &mut Module,
    table: TypeId,
    key: TypeId,
    put: impl Fn(&mut Dynamic, &Dynamic, Dynamic) -> Answer<()> + 'static,
) {
    let func = move |_: Option<NativeCallContext<'_>>, arguments: &mut [&mut Dynamic]| {
        let [table, key, value] = arguments else { return Ok(Dynamic::UNIT) };
        if entry(table, key).is_some_and(|entry| is_same(&entry, value)) {
            return Ok(Dynamic::UNIT);
        }
        if table.is_read_only() {
            return Err(EvalAltResult::ErrorAssignmentToConstant(String::new(), Position::NONE).into());
        }
        put(table, key, std::mem::take(*value)).map(Dynamic::from)
    };
    let function =
        RhaiFunc::Method { func: Rc::new(func), has_context: false, is_pure: true, is_volatile: false };
    FuncRegistration::new("index$set$").in_global_namespace().set_into_module_raw(
        module,
        [table, key, TypeId::of::<Dynamic>()],
        function,
    );
}

fn entry(table: &Dynamic, key: &Dynamic) -> Option<Dynamic> {
    if let (Some(map), Ok(key)) = (map(table), key.as_immutable_string_ref()) {
        return map.get(key.as_str());
    }
    let (array, index) = (array(table)?, key.as_int().ok()?);
    array.get(place(array.len(), index)?).cloned()
}

/// Whether two values are equal as data. It may return false for equal shared tables and functions.
pub(crate) fn is_same(one: &Dynamic, other: &Dynamic) -> bool {
    if let (Some(one), Some(other)) = (map(one), map(other)) {
        return Rc::ptr_eq(&one, &other);
    }
    if let (Some(one), Some(other)) = (array(one), array(other)) {
        return Rc::ptr_eq(&one, &other);
    }
    if let (Ok(one), Ok(other)) = (one.as_map_ref(), other.as_map_ref()) {
        let is_same = |((key, one), (other_key, other)): ((&_, &Dynamic), (&_, &Dynamic))| {
            key == other_key && self::is_same(one, other)
        };
        return one.len() == other.len() && one.iter().zip(other.iter()).all(is_same);
    }
    if let (Ok(one), Ok(other)) = (one.as_array_ref(), other.as_array_ref()) {
        return one.len() == other.len()
            && one.iter().zip(other.iter()).all(|(one, other)| is_same(one, other));
    }
    if let (Ok(one), Ok(other)) = (one.as_immutable_string_ref(), other.as_immutable_string_ref()) {
        return *one == *other;
    }
    if let (Ok(one), Ok(other)) = (one.as_float(), other.as_float()) {
        return one.to_bits() == other.to_bits();
    }
    let is_unit = one.is_unit() && other.is_unit();
    is_unit
        || one.as_int().is_ok_and(|one| other.as_int() == Ok(one))
        || one.as_bool().is_ok_and(|one| other.as_bool() == Ok(one))
        || one.as_char().is_ok_and(|one| other.as_char() == Ok(one))
        || one
            .read_lock::<BigNumber>()
            .is_some_and(|one| other.read_lock::<BigNumber>().is_some_and(|other| *one == *other))
}

/// A function that leaves the table unchanged.
fn set<A: 'static, const N: usize, const X: bool, R: Variant + Clone, const F: bool>(
    module: &mut Module,
    name: &str,
    function: impl RhaiNativeFunc<A, N, X, R, F> + 'static,
) {
    FuncRegistration::new(name).in_global_namespace().with_purity(true).set_into_module(module, function);
}

/// Returns Rhai's error for plain maps and arrays if the key is of another type than `wanted`.
fn refuse_other_keys<T: 'static>(module: &mut Module, wanted: &'static str)
where
    Frozen<T>: Clone,
{
    let refuse = move |key: &Dynamic| -> Answer<Dynamic> {
        // Rhai tries this for a field that is no function of an array, and then has a better error.
        if key.is_string() {
            return Err(EvalAltResult::ErrorIndexingType("array [string]".to_owned(), Position::NONE).into());
        }
        let given = key.type_name().to_owned();
        Err(EvalAltResult::ErrorMismatchDataType(wanted.to_owned(), given, Position::NONE).into())
    };
    FuncRegistration::new_index_getter()
        .with_purity(true)
        .set_into_module(module, move |_: &mut Frozen<T>, key: Dynamic| refuse(&key));
    FuncRegistration::new_index_setter()
        .set_into_module(module, move |_: &mut Frozen<T>, key: Dynamic, _: Dynamic| refuse(&key).map(drop));
}

/// As Rhai's own `get`: an index before the first element gives the first.
fn element(array: &Array, index: INT) -> Dynamic {
    let place = place(array.len(), index).or((index < 0).then_some(0));
    place.and_then(|place| array.get(place)).cloned().unwrap_or(Dynamic::UNIT)
}

fn length(length: usize) -> INT {
    INT::try_from(length).unwrap_or(INT::MAX)
}

/// The position of an index; a negative one counts from the end.
fn place(length: usize, index: INT) -> Option<usize> {
    let from_end = index < 0;
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if from_end { length.checked_sub(distance) } else { Some(distance).filter(|&place| place < length) }
}

fn out_of_bounds(table: &Frozen<Array>, index: INT) -> EvalAltResult {
    EvalAltResult::ErrorArrayBounds(table.0.len(), index, Position::NONE)
}

impl IntoIterator for Frozen<Array> {
    type Item = Dynamic;
    type IntoIter = Elements;

    fn into_iter(self) -> Elements {
        Elements { array: self.0, next: 0 }
    }
}

/// The elements of a shared array, each copied when it is reached.
#[derive(Debug)]
pub(crate) struct Elements {
    array: Rc<Array>,
    next: usize,
}

impl Iterator for Elements {
    type Item = Dynamic;

    fn next(&mut self) -> Option<Dynamic> {
        let element = self.array.get(self.next).cloned();
        self.next += 1;
        element
    }
}
