//! Weights in and out: safetensors in the Hugging Face layout, written atomically.
