#include "common/rpc/assembler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/rpc/limits.h"

namespace cairn {
namespace {

bool SameRequest(const Frame& a, const Frame& b) {
  return a.kind == b.kind && a.job == b.job && a.partition == b.partition && a.generation == b.generation &&
         a.replica_first == b.replica_first && a.replica_count == b.replica_count && a.sequence == b.sequence &&
         a.version == b.version && a.want_version == b.want_version && a.examples == b.examples && a.dtype == b.dtype &&
         a.reply_dtype == b.reply_dtype && a.tensor == b.tensor && a.tensors == b.tensors &&
         a.ema_overwrite == b.ema_overwrite && a.norms_xxh3 == b.norms_xxh3 && a.loss_scale == b.loss_scale &&
         a.not_finite == b.not_finite && a.payload_total == b.payload_total;
}

}  // namespace

Frame FrameSplitter::Next(size_t bytes_max) {
  CAIRN_CHECK(!done_ && bytes_max > 0, "FrameSplitter::Next after the last chunk");
  const size_t total = whole_.payload.size();
  const size_t n = std::min(bytes_max, total - offset_);
  Frame chunk = whole_;
  if (offset_ > 0) {  // count it only once
    chunk.image.clear();
    chunk.scalars.clear();
    chunk.figures.clear();
  }
  chunk.payload = whole_.payload.Slice(offset_, n);
  chunk.payload_offset = offset_;
  chunk.payload_total = total;
  offset_ += n;
  done_ = offset_ == total;
  return chunk;
}

FrameAssembler::~FrameAssembler() { GiveBack(bytes_joining_); }

void FrameAssembler::GiveBack(size_t bytes) {
  bytes_joining_ -= bytes;
  if (shared_ != nullptr) shared_->Give(bytes);
}

void FrameAssembler::Grow(Join& join, size_t bytes) {
  const size_t had = join.frame.payload.size(), needed = join.received + bytes;
  if (join.dropped || needed <= had) return;
  const size_t size = std::min(join.frame.payload_total, kAssemblerGrowth * needed);
  join.dropped = shared_ != nullptr && !shared_->TryTake(size - had);
  if (join.dropped) {
    join.frame.payload = Buffer();
    return GiveBack(had);
  }
  bytes_joining_ += size - had;
  Buffer larger = Buffer::Allocate(size);
  if (join.received > 0) std::memcpy(larger.mutable_data(), join.frame.payload.data(), join.received);
  join.frame.payload = std::move(larger);
}

absl::Status FrameAssembler::CheckChunk(const DecodedFrame& chunk) const {
  const Frame& f = chunk.frame;
  const auto refuse = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrFormat("request %d: %s", f.request_id, what));
  };
  if (f.payload_total > tensor_bytes_max_) {
    return refuse(absl::StrFormat("payload_total %d is more than %d bytes", f.payload_total, tensor_bytes_max_));
  }
  if (chunk.payload_size > f.payload_total || f.payload_offset > f.payload_total - chunk.payload_size) {
    return refuse(absl::StrFormat("payload of %d bytes at payload_offset %d goes beyond payload_total %d",
                                  chunk.payload_size, f.payload_offset, f.payload_total));
  }
  if (chunk.payload_size == 0 && f.payload_total > 0) return refuse("a chunk without payload");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Frame>> FrameAssembler::Add(DecodedFrame chunk) {
  CAIRN_RETURN_IF_ERROR(CheckChunk(chunk));
  const uint64_t id = chunk.frame.request_id;
  const size_t total = chunk.frame.payload_total;
  auto it = joins_.find(id);

  if (it == joins_.end()) {
    if (chunk.frame.payload_offset != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("request %d begins at payload_offset %d, not 0", id, chunk.frame.payload_offset));
    }
    if (chunk.payload_size == total && total <= kFramePayloadBytesMax) {  // whole in one chunk, and not counted
      chunk.frame.payload = Buffer::Allocate(total);
      CopyPayload(chunk, absl::MakeSpan(chunk.frame.payload.mutable_data(), total));
      return std::optional<Frame>(std::move(chunk.frame));
    }
    if (joins_.size() >= kAssemblerJoinsMax || total > bytes_max_ - bytes_announced_) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "request %d of %d bytes: %d bytes in %d unfinished requests are open on this stream, at most %d "
          "and %d; finish them first",
          id, total, bytes_announced_, joins_.size(), bytes_max_, kAssemblerJoinsMax));
    }
    chunk.frame.payload = Buffer();  // what it holds is counted from here on
    it = joins_.emplace(id, Join{std::move(chunk.frame)}).first;
    bytes_announced_ += total;
  } else if (!SameRequest(it->second.frame, chunk.frame)) {
    return absl::InvalidArgumentError(absl::StrFormat("request %d: chunks with different headers", id));
  } else if (chunk.frame.payload_offset != it->second.received) {
    return absl::InvalidArgumentError(absl::StrFormat("request %d: payload_offset %d after %d bytes", id,
                                                      chunk.frame.payload_offset, it->second.received));
  }

  Join& join = it->second;
  Grow(join, chunk.payload_size);
  if (!join.dropped) {
    CopyPayload(chunk, absl::MakeSpan(join.frame.payload.mutable_data() + join.received, chunk.payload_size));
  }
  join.received += chunk.payload_size;
  if (join.received < total) return std::optional<Frame>();
  Frame whole = std::move(join.frame);
  if (join.dropped) {
    whole.status = absl::ResourceExhaustedError(absl::StrFormat(
        "%d bytes of requests are being received, at most %d; retry", shared_->taken(), shared_->bytes_max()));
  } else {
    GiveBack(total);
  }
  bytes_announced_ -= total;
  joins_.erase(it);
  return std::optional<Frame>(std::move(whole));
}

}  // namespace cairn
