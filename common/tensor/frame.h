// Frame: the C++ form of a message of the Exchange stream (proto/cairn/v1/parameter.proto, ExchangeFrame).
//
// The cores exchange whole frames (payload_offset 0, the whole tensor in `payload`); the stream splits and joins them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cairn/v1/parameter.pb.h"
#include "cairn/v1/types.pb.h"
#include "common/base/ids.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct Frame {
  using Kind = v1::ExchangeFrame::Kind;

  Kind kind = v1::ExchangeFrame::KIND_UNSPECIFIED;
  uint64_t request_id = 0;
  JobId job;
  PartitionId partition;
  Generation generation;
  ReplicaId replica_first;
  uint32_t replica_count = 0;
  uint64_t sequence = 0;
  uint64_t version = 0;
  std::optional<uint64_t> want_version;
  uint64_t examples = 0;
  float learning_rate = 0;
  v1::DataType dtype = v1::DATA_TYPE_UNSPECIFIED;
  uint64_t payload_offset = 0;
  uint64_t payload_total = 0;
  absl::Status status;  // ERROR
  v1::DataType reply_dtype = v1::DATA_TYPE_UNSPECIFIED;
  uint32_t tensor = 0;  // IMAGE
  uint32_t tensors = 0;
  std::string image;    // IMAGE, tensor 0: a serialized PartitionImage
  std::string scalars;  // NORMS, CLIP; VALUES and REPLICATE of a clipped update
  bool ema_overwrite = false;
  uint64_t norms_xxh3 = 0;  // CLIP: checksum of the NORMS that the factors were computed from
  float loss_scale = 0;     // jobs that have one: of the gradient (PUSH, REPLICATE), for the next one (VALUES)
  bool not_finite = false;  // PUSH, REPLICATE: the gradient was not finite, and is left out
  std::string figures;      // PUSH, REPLICATE of the first partition: a serialized EpochFigures
  Buffer payload;
};

}  // namespace cairn
