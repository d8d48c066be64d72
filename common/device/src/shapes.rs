//! Shapes of operands: matrices, rows, heads of attention.

use crate::Result;

/// Whether a kernel overwrites its output or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `=`
    Replace,
    /// `+=`
    Accumulate,
}

/// A row-major matrix of `rows × columns` elements, whose rows start `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<T> {
    /// The elements, starting at the first of row 0.
    pub data: T,
    /// Rows as stored.
    pub rows: usize,
    /// Columns as stored.
    pub columns: usize,
    /// Elements between the starts of two stored rows.
    pub stride: usize,
    /// True if a product reads the transpose. An output is never transposed.
    pub transposed: bool,
    /// See [`Matrix::with_grain`].
    pub grain: usize,
}

impl<T> Matrix<T> {
    /// Returns a packed `rows × columns` matrix.
    pub fn new(data: T, rows: usize, columns: usize) -> Self {
        Matrix { data, rows, columns, stride: columns, transposed: false, grain: 0 }
    }

    /// Returns the transpose of this matrix.
    pub fn t(self) -> Self {
        Matrix { transposed: !self.transposed, ..self }
    }

    /// Returns the same elements with rows `stride` apart.
    pub fn with_stride(self, stride: usize) -> Self {
        Matrix { stride, ..self }
    }

    /// Returns the same elements, whose start is a multiple of `grain` elements in every layout of
    /// memory. A product then assumes no better alignment than that, so a start that happens to be
    /// aligned better does not change any bit. 0 promises nothing.
    pub fn with_grain(self, grain: usize) -> Self {
        Matrix { grain, ..self }
    }

    /// Returns the matrix with its data mapped by `to`.
    pub(crate) fn try_map<U>(self, to: impl FnOnce(T) -> Result<U>) -> Result<Matrix<U>> {
        let Matrix { data, rows, columns, stride, transposed, grain } = self;
        Ok(Matrix { data: to(data)?, rows, columns, stride, transposed, grain })
    }

    /// Returns the rows and columns as a product reads them.
    pub(crate) fn shape(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// Returns the number of elements from the first of row 0 to the last of the last row.
    pub(crate) fn extent(&self) -> usize {
        match self.rows * self.columns {
            0 => 0,
            _ => (self.rows - 1) * self.stride.max(self.columns) + self.columns,
        }
    }
}

/// `rows` vectors of `width` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShape {
    /// Number of vectors.
    pub rows: usize,
    /// Elements of each.
    pub width: usize,
}

impl RowShape {
    /// Returns the elements of all vectors.
    pub const fn elements(&self) -> usize {
        self.rows * self.width
    }
}

/// Vectors in groups: those of a group are adjacent, and groups start a stride apart, such as the
/// query heads of packed projections, a group per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedRows {
    /// Number of vectors; `group` divides it.
    pub rows: usize,
    /// Elements of each.
    pub width: usize,
    /// Vectors of a group.
    pub group: usize,
    /// Elements between the starts of two groups.
    pub stride: usize,
}

impl From<RowShape> for GroupedRows {
    /// Returns adjacent vectors, each a group.
    fn from(RowShape { rows, width }: RowShape) -> Self {
        GroupedRows { rows, width, group: 1, stride: width }
    }
}

impl GroupedRows {
    /// Returns the elements of all vectors.
    pub const fn elements(&self) -> usize {
        self.rows * self.width
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.rows / self.group.max(1)
    }

    /// Returns the number of elements from the first of the first vector to the last of the last.
    pub(crate) fn extent(&self) -> usize {
        match self.elements() {
            0 => 0,
            _ => (self.groups() - 1) * self.stride + self.group * self.width,
        }
    }

    /// Returns the index of the first element of vector `row`.
    #[inline(always)]
    pub(crate) fn start(&self, row: usize) -> usize {
        row / self.group * self.stride + row % self.group * self.width
    }
}

/// Causal attention with grouped key/value heads over packed projections.
///
/// `qkv` is `[batch · tokens, (heads + 2 · kv_heads) · head_dim]`: a row holds all query heads,
/// then all key heads, then all value heads. `out` is `[batch · tokens, heads · head_dim]`. Query
/// head h reads key/value head `h / (heads / kv_heads)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Tokens per sequence (T).
    pub tokens: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Returns the number of rows of `qkv` and `out`.
    pub const fn rows(&self) -> usize {
        self.batch * self.tokens
    }

    /// Returns the number of columns of `qkv`.
    pub const fn packed_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Returns the number of columns of `out`.
    pub const fn width(&self) -> usize {
        self.heads * self.head_dim
    }
}
