//! `Captured`: the variables that closures have captured.
//!
//! Rhai shares a captured variable between the function and its closures, and counts references to it. This has
//! two defects, which are fixed here. A closure that is put into its captured variable holds itself and would
//! never be freed. So the variables of an attempt are emptied at its end. A variable that the top of an imported
//! script captures would be shared by all jobs. So each attempt has a copy of its own, made at the first read.
//!
//! A closure can hold one that holds one, and so on, within the memory limit. Freeing such a chain from its
//! end needs one call per link, and more stack than available. So each variable is held here too, and none is
//! freed by another one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rhai::{AST, ASTNode, Dynamic, FnPtr, Stmt};

type Shared = Rc<RefCell<Dynamic>>;

/// Variables by the address of their values.
type Variables = BTreeMap<usize, Shared>;

/// The captured variables of the running attempt.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    own: Variables,
    constants: Constants,
    /// Copies of variables that persist between attempts.
    copies: BTreeMap<usize, Shared>,
    /// Number of variables from which on a sweep is worthwhile.
    crowded: usize,
}

/// Captured variables of the tops of imported scripts, which persist between attempts.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    variables: Variables,
    constants: Constants,
}

/// Captured constants that hold functions, by the address of their values, in the order of their capture. A
/// constant holds no later one.
#[derive(Debug, Default)]
struct Constants {
    addresses: BTreeSet<usize>,
    held: Vec<Dynamic>,
}

/// Initial number of variables from which on a sweep is worthwhile.
const CROWDED: usize = 64;

/// Maximum number of values of a constant that is searched for functions. Chains of larger constants are
/// short because of their memory, so that the stack suffices.
const SEARCHED_MAX: usize = 64;

impl Captured {
    /// Tracks a captured variable that is read. A newly captured variable has no other reference yet, since
    /// its first reader is the code that gives it to the closure.
    pub(crate) fn adopt(&mut self, variable: &mut Dynamic, kept: &Kept) {
        let Some(mut value) = variable.write_lock::<Dynamic>() else { return };
        let address = address(&value);
        // A constant cannot be put into itself.
        if self.own.contains_key(&address) || value.is_read_only() {
            return;
        }
        if kept.variables.contains_key(&address) {
            let copy = match self.copies.get(&address) {
                Some(copy) => Rc::clone(copy),
                None => {
                    let copy = self.share(value.clone());
                    self.copies.insert(address, Rc::clone(&copy));
                    copy
                }
            };
            drop(value);
            *variable = Dynamic::from(copy);
            return;
        }
        let taken = std::mem::take(&mut *value);
        drop(value);
        *variable = Dynamic::from(self.share(taken));
    }

    /// Holds a captured constant that is read.
    pub(crate) fn hold(&mut self, constant: &Dynamic) {
        let Some(value) = constant.read_lock::<Dynamic>() else { return };
        let address = address(&value);
        if !self.constants.addresses.contains(&address) && holds_function(&value, &mut 0) {
            drop(value);
            self.constants.addresses.insert(address);
            self.constants.held.push(constant.clone());
        }
    }

    fn share(&mut self, value: Dynamic) -> Shared {
        if self.own.len() >= self.crowded.max(CROWDED) {
            self.sweep();
            self.crowded = self.own.len() * 2;
        }
        let shared: Shared = Rc::new(RefCell::new(value));
        self.own.insert(shared.as_ptr() as usize, Rc::clone(&shared));
        shared
    }

    /// Frees the variables without another reference. The latest go first, since they hold earlier ones.
    pub(crate) fn sweep(&mut self) {
        while self.sweep_once() {}
    }

    fn sweep_once(&mut self) -> bool {
        let before = self.own.len();
        let mut rest = std::mem::take(&mut self.own);
        while let Some((address, variable)) = rest.pop_last() {
            if Rc::strong_count(&variable) > 1 {
                self.own.insert(address, variable);
            }
        }
        // Addresses mostly increase with time. Otherwise another round finds the variables that this one has
        // freed.
        before - self.own.len() > before / 4
    }

    /// Empties the variables, so that none holds itself.
    pub(crate) fn release(self) {
        empty(self.own);
    }

    /// Keeps the variables for later attempts, none of which will change them.
    pub(crate) fn keep(&mut self, kept: &mut Kept) {
        kept.variables.append(&mut self.own);
        kept.constants.addresses.append(&mut self.constants.addresses);
        kept.constants.held.append(&mut self.constants.held);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        empty(std::mem::take(&mut self.variables));
    }
}

impl Drop for Constants {
    fn drop(&mut self) {
        while self.held.pop().is_some() {}
    }
}

fn empty(variables: Variables) {
    let emptied = |variable: Shared| {
        let Ok(mut value) = variable.try_borrow_mut() else { return None };
        Some(std::mem::take(&mut *value))
    };
    // Dropped together, after each is emptied.
    drop(variables.into_values().map(emptied).collect::<Vec<_>>());
}

/// Whether a function with captured variables is among the first values. `seen`: the number of visited
/// values.
fn holds_function(value: &Dynamic, seen: &mut usize) -> bool {
    *seen += 1;
    if *seen > SEARCHED_MAX {
        return false;
    }
    if let Ok(map) = value.as_map_ref() {
        return map.values().any(|value| holds_function(value, seen));
    }
    if let Ok(array) = value.as_array_ref() {
        return array.iter().any(|value| holds_function(value, seen));
    }
    value.read_lock::<FnPtr>().is_some_and(|function| function.is_curried())
}

fn address(value: &Dynamic) -> usize {
    std::ptr::from_ref(value) as usize
}

/// Whether closures in `ast` capture variables.
pub(crate) fn captures(ast: &AST) -> bool {
    let mut captures = false;
    ast.walk(&mut |path| {
        captures |= matches!(path.last(), Some(ASTNode::Stmt(Stmt::Share(_))));
        !captures
    });
    captures
}
