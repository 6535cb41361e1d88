//! Numbers as the bytes that are sent: no copy, and little-endian because the machine is.

#[cfg(target_endian = "big")]
compile_error!("bulk is little-endian, and so must the machine be");

/// The bytes of f32, f64 or other plain numbers.
pub fn as_bytes<T: bytemuck::Pod>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// The bytes of f32, f64 or other plain numbers, to be read into.
pub fn as_bytes_mut<T: bytemuck::Pod>(values: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(values)
}
