//! Reverse-mode differentiation of f64 scalars, one operation at a time.

/// A number on a [`Tape`].
#[derive(Clone, Copy)]
pub(crate) struct Var(usize);

struct Node {
    value: f64,
    /// The operands and the derivatives with respect to them; a leaf's derivatives are 0.
    operands: [(usize, f64); 2],
}

/// All operations so far.
#[derive(Default)]
pub(crate) struct Tape(Vec<Node>);

impl Tape {
    fn push(&mut self, value: f64, operands: [(usize, f64); 2]) -> Var {
        self.0.push(Node { value, operands });
        Var(self.0.len() - 1)
    }

    pub(crate) fn leaf(&mut self, value: f64) -> Var {
        let this = self.0.len();
        self.push(value, [(this, 0.0); 2])
    }

    pub(crate) fn value(&self, a: Var) -> f64 {
        self.0[a.0].value
    }

    pub(crate) fn add(&mut self, a: Var, b: Var) -> Var {
        self.push(self.value(a) + self.value(b), [(a.0, 1.0), (b.0, 1.0)])
    }

    pub(crate) fn mul(&mut self, a: Var, b: Var) -> Var {
        let (x, y) = (self.value(a), self.value(b));
        self.push(x * y, [(a.0, y), (b.0, x)])
    }

    /// Records that `value` is a function of `a` alone, with derivative `slope`.
    fn unary(&mut self, a: Var, value: f64, slope: f64) -> Var {
        self.push(value, [(a.0, slope), (a.0, 0.0)])
    }

    pub(crate) fn scale(&mut self, a: Var, factor: f64) -> Var {
        self.unary(a, self.value(a) * factor, factor)
    }

    pub(crate) fn shift(&mut self, a: Var, constant: f64) -> Var {
        self.unary(a, self.value(a) + constant, 1.0)
    }

    pub(crate) fn exp(&mut self, a: Var) -> Var {
        let exp = self.value(a).exp();
        self.unary(a, exp, exp)
    }

    pub(crate) fn ln(&mut self, a: Var) -> Var {
        let x = self.value(a);
        self.unary(a, x.ln(), 1.0 / x)
    }

    pub(crate) fn power(&mut self, a: Var, exponent: f64) -> Var {
        let x = self.value(a);
        self.unary(a, x.powf(exponent), exponent * x.powf(exponent - 1.0))
    }

    pub(crate) fn sum(&mut self, terms: &[Var]) -> Var {
        let first = terms[0];
        terms[1..].iter().fold(first, |sum, &term| self.add(sum, term))
    }

    pub(crate) fn dot(&mut self, a: &[Var], b: &[Var]) -> Var {
        let products: Vec<Var> = a.iter().zip(b).map(|(&a, &b)| self.mul(a, b)).collect();
        self.sum(&products)
    }

    /// Returns the derivatives of `of` with respect to every number on the tape.
    fn derivatives(&self, of: Var) -> Vec<f64> {
        let mut derivatives = vec![0.0; self.0.len()];
        derivatives[of.0] = 1.0;
        for (i, node) in self.0.iter().enumerate().rev() {
            for (operand, slope) in node.operands {
                derivatives[operand] += derivatives[i] * slope;
            }
        }
        derivatives
    }

    /// Returns the derivatives of `of` with respect to `with`.
    pub(crate) fn gradient(&self, of: Var, with: &[Var]) -> Vec<f64> {
        let derivatives = self.derivatives(of);
        with.iter().map(|v| derivatives[v.0]).collect()
    }
}
