//! `UsedFields`: the parts of the job that a script can read or change, as far as its code is certain.
//!
//! The rest of a job need not be parsed. A job as a whole is used as soon as the script
//! iterates it, compares it, or gives it to a function: only returning and emitting it count as handing on.

use std::collections::BTreeSet;
use std::mem;
use std::ptr;

use rhai::{AST, ASTFlags, ASTNode, BinaryExpr, Expr, FnCallExpr, ImmutableString, Stmt};

/// The used parts of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UsedFields {
    /// The whole value. `changes`: it may be another one afterwards.
    Whole { changes: bool },
    /// An object of which only these fields are used. Others are only handed on with it.
    Fields(Vec<(Box<str>, Self)>),
}

/// A value that is only handed on.
const HANDED_ON: UsedFields = UsedFields::Fields(Vec::new());
const READ: UsedFields = UsedFields::Whole { changes: false };
const CHANGED: UsedFields = UsedFields::Whole { changes: true };

/// Functions that get an output as their second argument.
const EMIT: [&str; 3] = ["emit", "emit_in", "emit_at"];
/// Methods and functions of maps that read one key.
const ASK: [&str; 2] = ["contains", "get"];

impl UsedFields {
    /// As a function `name` of `params` parameters uses its first one. A variable of the same name in another function
    /// counts, too.
    pub(crate) fn of_function(ast: &AST, name: &str, params: usize) -> Self {
        let mut functions = ast.iter_functions();
        let function = functions.find(|function| function.name == name && function.params.len() == params);
        let Some(variable) = function.and_then(|function| function.params.first().copied()) else {
            return CHANGED;
        };
        Self::of_variable(ast, variable, true)
    }

    /// As an expression uses a variable.
    pub(crate) fn of_expression(ast: &AST, variable: &str) -> Self {
        Self::of_variable(ast, variable, false)
    }

    /// `hands_on`: the value of a statement is returned, or not used.
    fn of_variable(ast: &AST, variable: &str, hands_on: bool) -> Self {
        let own = ast.iter_functions().map(|function| function.name.to_owned()).collect();
        let finder = Finder { variable, hands_on, own };
        let mut used = HANDED_ON;
        ast.walk(&mut |path| finder.add(path, &mut used));
        used
    }

    /// As code that reads the value at `path`.
    pub(crate) fn reading(path: &[&str]) -> Self {
        READ.at(path)
    }

    /// This use of the value at `path`.
    fn at(self, path: &[impl AsRef<str>]) -> Self {
        let within = |inner, field: &_| Self::Fields(vec![(AsRef::<str>::as_ref(field).into(), inner)]);
        path.iter().rev().fold(self, within)
    }

    /// Gives back unused room.
    pub(crate) fn shrink(&mut self) {
        if let Self::Fields(fields) = self {
            fields.shrink_to_fit();
            for (_, used) in fields {
                used.shrink();
            }
        }
    }

    /// Whether a part may be another one afterwards.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Whole { changes } => *changes,
            Self::Fields(fields) => fields.iter().any(|(_, used)| used.changes()),
        }
    }

    /// As code that uses the value in both ways.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Fields(mut fields), Self::Fields(others)) => {
                for (name, other) in others {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, used)) => *used = mem::replace(used, HANDED_ON).and(other),
                        None => fields.push((name, other)),
                    }
                }
                Self::Fields(fields)
            }
            (one, other) => Self::Whole { changes: one.changes() || other.changes() },
        }
    }
}

struct Finder<'a> {
    /// Name of the variable with the job.
    variable: &'a str,
    /// The value of a statement is returned, or not used.
    hands_on: bool,
    /// Functions of the script, which may have the name of a registered one.
    own: BTreeSet<String>,
}

/// The last link of a chain such as `job.order.items[3]`.
enum End {
    /// A field, which is the value.
    Field,
    /// A question for a field.
    Question,
    /// An element of a list, or a field whose name is not known.
    Element,
    /// A method, which may change the value.
    Method,
}

impl Finder<'_> {
    /// Adds the use at the end of a path from a statement to a node of the code. Returns whether to go on.
    fn add(&self, path: &[ASTNode<'_>], used: &mut UsedFields) -> bool {
        let found = match path.last() {
            Some(ASTNode::Expr(expr @ Expr::Variable(variable, ..))) if *variable.1 == *self.variable => {
                self.used_at(expr, &path[..path.len() - 1])
            }
            // Another variable of this name hides the job, or a closure holds it.
            Some(ASTNode::Stmt(statement)) if self.names_variable(statement) => CHANGED,
            _ => return true,
        };
        *used = mem::replace(used, HANDED_ON).and(found);
        *used != CHANGED
    }

    fn names_variable(&self, statement: &Stmt) -> bool {
        let is_it = |name: &str| name == self.variable;
        match statement {
            Stmt::Var(declared, ..) => is_it(&declared.0.name),
            Stmt::For(head, ..) => {
                is_it(&head.0.name) || head.1.as_ref().is_some_and(|counter| is_it(&counter.name))
            }
            Stmt::TryCatch(flow, ..) => matches!(&flow.expr, Expr::Variable(name, ..) if is_it(&name.1)),
            Stmt::Share(shared) => shared.iter().any(|(name, _)| is_it(&name.name)),
            _ => false,
        }
    }

    /// The use of the job by the variable `job` within the nodes `around` it.
    fn used_at(&self, job: &Expr, around: &[ASTNode<'_>]) -> UsedFields {
        let (mut node, mut around, mut fields, mut end) = (job, around, Vec::new(), End::Field);
        if let Some((ASTNode::Expr(chain @ (Expr::Dot(pair, flags, _) | Expr::Index(pair, flags, _))), outer)) =
            around.split_last()
            && ptr::eq(&raw const pair.lhs, job)
        {
            end = self.links((pair, *flags), matches!(chain, Expr::Dot(..)), &mut fields);
            (node, around) = (chain, outer);
        }
        let outer = around.last();
        if matches!(outer, Some(ASTNode::Stmt(Stmt::Assignment(pair))) if ptr::eq(&raw const pair.1.lhs, node))
        {
            return CHANGED.at(&fields);
        }
        match end {
            End::Method => CHANGED.at(&fields),
            End::Element | End::Question => READ.at(&fields),
            End::Field => {
                if let Some(ASTNode::Expr(Expr::FnCall(call, _))) = outer
                    && let Some(key) = self.question(call)
                    && call.args.first().is_some_and(|first| ptr::eq(first, node))
                {
                    fields.push(key.clone());
                    return READ.at(&fields);
                }
                if self.is_handed_on(node, around) { HANDED_ON.at(&fields) } else { READ.at(&fields) }
            }
        }
    }

    /// Collects the fields of a chain, and returns its end. `is_dot`: the first link is `.name`.
    fn links(
        &self,
        (mut pair, mut flags): (&BinaryExpr, ASTFlags),
        mut is_dot: bool,
        fields: &mut Vec<ImmutableString>,
    ) -> End {
        loop {
            let next = match &pair.rhs {
                Expr::Dot(next, its_flags, _) => Some((next, *its_flags, true)),
                Expr::Index(next, its_flags, _) => Some((next, *its_flags, false)),
                _ => None,
            };
            let next = next.filter(|_| !flags.contains(ASTFlags::BREAK));
            let link = next.as_ref().map_or(&pair.rhs, |(next, ..)| &next.lhs);
            match link {
                Expr::Property(property, _) if is_dot => fields.push(property.2.clone()),
                // The empty key marks the rest of a job.
                Expr::StringConstant(name, _) if !is_dot && !name.is_empty() => fields.push(name.clone()),
                Expr::MethodCall(call, _) => {
                    let key = self.question(call).filter(|_| next.is_none());
                    let Some(key) = key else { return End::Method };
                    fields.push(key.clone());
                    return End::Question;
                }
                _ => return End::Element,
            }
            let Some((inner, its_flags, dot)) = next else { return End::Field };
            (pair, flags, is_dot) = (inner, its_flags, dot);
        }
    }

    /// The key that a call asks for; `None` for other calls.
    fn question<'c>(&self, call: &'c FnCallExpr) -> Option<&'c ImmutableString> {
        let is_registered = call.namespace.is_empty() && !self.own.contains(call.name.as_str());
        let Some(Expr::StringConstant(key, _)) = call.args.last() else { return None };
        let asks = ASK.contains(&call.name.as_str()) && call.args.len() <= 2 && !key.is_empty();
        (is_registered && asks).then_some(key)
    }

    /// Whether the value of `node` is only returned or emitted, perhaps within a map or a list.
    fn is_handed_on(&self, node: &Expr, around: &[ASTNode<'_>]) -> bool {
        let mut node = ASTNode::Expr(node);
        for &outer in around.iter().rev() {
            let goes_on = match (node, outer) {
                (
                    ASTNode::Expr(node),
                    ASTNode::Expr(Expr::FnCall(call, _)) | ASTNode::Stmt(Stmt::FnCall(call, _)),
                ) => return self.emits(call, node),
                (ASTNode::Expr(_), ASTNode::Stmt(Stmt::Return(_, flags, _))) => {
                    return !flags.contains(ASTFlags::BREAK);
                }
                (ASTNode::Expr(node), ASTNode::Stmt(Stmt::Switch(switch, _))) => {
                    switch.1.expressions.iter().any(|case| ptr::eq(&raw const case.rhs, node))
                }
                (
                    ASTNode::Expr(_),
                    ASTNode::Expr(Expr::Map(..) | Expr::Array(..)) | ASTNode::Stmt(Stmt::Expr(_)),
                )
                | (
                    ASTNode::Stmt(_),
                    ASTNode::Stmt(Stmt::If(..) | Stmt::Block(_)) | ASTNode::Expr(Expr::Stmt(_)),
                ) => true,
                _ => false,
            };
            if !goes_on {
                return false;
            }
            node = outer;
        }
        self.hands_on && matches!(node, ASTNode::Stmt(_))
    }

    /// Whether a call emits the value of `node`.
    fn emits(&self, call: &FnCallExpr, node: &Expr) -> bool {
        let is_registered = call.namespace.is_empty() && !self.own.contains(call.name.as_str());
        is_registered
            && EMIT.contains(&call.name.as_str())
            && call.args.get(1).is_some_and(|output| ptr::eq(output, node))
    }
}
