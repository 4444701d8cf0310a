#include "common/base/digest.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>  // the same functions, with the widest instructions that this processor has
#endif

#include "absl/strings/str_format.h"

namespace cairn {

uint64_t Checksum(const void* data, size_t size) { return XXH3_64bits(data, size); }

struct Digest::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }
Digest::~Digest() = default;
void Digest::Add(const void* data, size_t size) { XXH3_128bits_update(state_->xxh, data, size); }
std::string Digest::Hex() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->xxh);
  return absl::StrFormat("%016x%016x", h.high64, h.low64);
}

}  // namespace cairn
