//! Sums and differences of counters.

/// Implements `+` and `-` for a struct of counters, field by field, those in brackets element by
/// element: `counters! { Moved [bytes, calls] seconds }`.
#[macro_export]
macro_rules! counters {
    (@ $trait:ident $method:ident $sign:tt $name:ident [$($array:ident),*] $($field:ident),*) => {
        impl std::ops::$trait for $name {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                Self {
                    $($array: std::array::from_fn(|i| self.$array[i] $sign other.$array[i]),)*
                    $($field: self.$field $sign other.$field,)*
                }
            }
        }
    };
    ($name:ident [$($array:ident),*] $($field:ident),*) => {
        $crate::counters! { @ Add add + $name [$($array),*] $($field),* }
        $crate::counters! { @ Sub sub - $name [$($array),*] $($field),* }
    };
}
