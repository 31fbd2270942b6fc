//! Variables that closures have captured.
//!
//! Rhai shares a captured variable between the function and its closures, and counts references to it. Two
//! things follow, and are mended here. A closure that is put into what it has captured holds itself, so that
//! nothing would ever free it: the variables of an attempt are emptied when it ends. And what the top of an
//! imported script captures would be one variable for all jobs: each attempt has a copy of its own, made when it
//! first reads the variable.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use rhai::{AST, ASTNode, Dynamic, Engine, EvalContext, Stmt};

use super::attempt::Attempt;

type Shared = Rc<RefCell<Dynamic>>;

/// Variables by the address of their values. A weak reference keeps its memory, so that no other value gets the
/// address while it is here.
type Variables = BTreeMap<usize, Weak<RefCell<Dynamic>>>;

/// What the attempt that runs now has captured.
#[derive(Debug, Default)]
pub(super) struct Captured {
    own: Variables,
    /// In the place of variables that stay from attempt to attempt.
    copies: BTreeMap<usize, Shared>,
    /// From how many on it is worth to look for those that are gone.
    crowded: usize,
}

/// What stays from attempt to attempt: captured by the tops of imported scripts.
#[derive(Debug, Default)]
pub(super) struct Kept(Variables);

/// From how many on variables that are gone are looked for.
const CROWDED: usize = 64;

impl Captured {
    /// Takes charge of a captured variable that is read. One that has just been captured is shared by nothing
    /// yet, since the first to read it is the one who gives it to the closure.
    pub(super) fn adopt(&mut self, variable: &mut Dynamic, kept: &Kept) {
        let Some(mut value) = variable.write_lock::<Dynamic>() else { return };
        let address = address(&value);
        // A constant cannot be put into itself.
        if self.own.contains_key(&address) || value.is_read_only() {
            return;
        }
        if kept.0.contains_key(&address) {
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

    fn share(&mut self, value: Dynamic) -> Shared {
        if self.own.len() >= self.crowded.max(CROWDED) {
            self.own.retain(|_, variable| variable.strong_count() > 0);
            self.crowded = self.own.len() * 2;
        }
        let shared: Shared = Rc::new(RefCell::new(value));
        self.own.insert(shared.as_ptr() as usize, Rc::downgrade(&shared));
        shared
    }

    /// Empties the variables, so that nothing holds itself.
    pub(super) fn release(self) {
        empty(self.own);
    }

    /// Leaves the variables to the attempts to come, none of which will change them.
    pub(super) fn keep(&mut self, kept: &mut Kept) {
        kept.0.retain(|_, variable| variable.strong_count() > 0);
        kept.0.append(&mut self.own);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        empty(std::mem::take(&mut self.0));
    }
}

fn empty(variables: Variables) {
    let emptied = |variable: Weak<RefCell<Dynamic>>| {
        let variable = variable.upgrade()?;
        let Ok(mut value) = variable.try_borrow_mut() else { return None };
        Some(std::mem::take(&mut *value))
    };
    // Dropped together, after each is emptied.
    drop(variables.into_values().map(emptied).collect::<Vec<_>>());
}

fn address(value: &Dynamic) -> usize {
    std::ptr::from_ref(value) as usize
}

/// Whether closures in `ast` capture variables.
pub(super) fn captures(ast: &AST) -> bool {
    let mut captures = false;
    ast.walk(&mut |path| {
        captures |= matches!(path.last(), Some(ASTNode::Stmt(Stmt::Share(_))));
        !captures
    });
    captures
}

/// Lets `engine` tell `attempt` of each captured variable that is read. It costs something for other variables
/// too, and so is only for scripts that capture some.
pub(super) fn watch(engine: &mut Engine, attempt: &Rc<Attempt>) {
    let attempt = Rc::clone(attempt);
    #[expect(
        deprecated,
        reason = "not deprecated, says its note, but volatile: tests hold what is used of it"
    )]
    engine.on_var(move |name, _, mut context: EvalContext<'_, '_, '_, '_, '_, '_>| {
        if let Some(variable) = context.scope_mut().get_mut(name).filter(|variable| variable.is_shared()) {
            attempt.adopt(variable);
        }
        Ok(None)
    });
}
