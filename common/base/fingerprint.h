// The hashes that TensorFlow takes of strings, which Keras' layers of categories are made of. They are part of a model:
// their values never change.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cairn {

// FarmHash's Fingerprint64: tf.strings.to_hash_bucket_fast.
uint64_t Fingerprint64(absl::string_view bytes);

// SipHash-2-4 (Aumasson and Bernstein 2012): tf.strings.to_hash_bucket_strong. key: its lower 8 bytes, its upper ones.
uint64_t SipHash(const uint64_t (&key)[2], absl::string_view bytes);

// What tf.sparse.cross_hashed begins with.
inline constexpr uint64_t kCrossingKey = 0xDECAFCAFFE;

// Of two fingerprints together, in this order: what tf.sparse.cross_hashed joins them by (core/platform/fingerprint.h).
uint64_t JoinFingerprints(uint64_t first, uint64_t second);

}  // namespace cairn
