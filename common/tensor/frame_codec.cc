#include "common/tensor/frame_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/tensor/limits.h"

namespace cairn {
namespace {

using google::protobuf::io::ZeroCopyInputStream;

// The letters of the grammar are the comments below.
enum Field : uint32_t {
  kKind = 1,            // (A)
  kRequestId = 2,       // (B)
  kJobId = 3,           // (C)
  kPartition = 4,       // (D)
  kGeneration = 5,      // (E)
  kReplicaFirst = 6,    // (F)
  kReplicaCount = 7,    // (G)
  kSequence = 8,        // (H)
  kVersion = 9,         // (I)
  kWantVersion = 10,    // (J)
  kExamples = 11,       // (K)
  kLearningRate = 12,   // (L)
  kDtype = 13,          // (M)
  kPayloadOffset = 14,  // (N)
  kPayloadTotal = 15,   // (O)
  kStatusCode = 16,     // (P)
  kStatusMessage = 17,  // (Q)
  kReplyDtype = 18,     // (R)
  kTensor = 19,         // (S)
  kTensors = 20,        // (T)
  kImage = 21,          // (U)
  kScalars = 22,        // (V)
  kEmaOverwrite = 23,   // (W)
  kNormsXxh3 = 24,      // (X)
  kLossScale = 25,      // (Y)
  kNotFinite = 26,      // (Z)
  kFigures = 27,        // (AA)
  kPayload = 100,       // (AB)
};

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// ---- writing ----

class Writer {
 public:
  explicit Writer(std::string* out) : stream_(out), out_(&stream_) {}

  void Tag(uint32_t field, WireType type) { out_.WriteTag(field << 3 | type); }
  void Varint(uint64_t v) { out_.WriteVarint64(v); }
  void Number(uint32_t field, uint64_t v) {
    if (v == 0) return;
    Tag(field, kVarint);
    Varint(v);
  }
  // int32 and enum: negative numbers take ten bytes.
  void Signed(uint32_t field, int32_t v) { Number(field, static_cast<uint64_t>(static_cast<int64_t>(v))); }
  void Fixed64(uint32_t field, uint64_t v) {
    if (v == 0) return;
    Tag(field, kFixed64);
    out_.WriteLittleEndian64(v);
  }
  // proto3 omits a float only if all its bits are zero, so -0.0 is written.
  void Float(uint32_t field, float v) {
    const uint32_t bits = std::bit_cast<uint32_t>(v);
    if (bits == 0) return;
    Tag(field, kFixed32);
    out_.WriteLittleEndian32(bits);
  }
  void Bytes(uint32_t field, std::string_view bytes) {
    if (bytes.empty()) return;
    Tag(field, kLengthDelimited);
    Varint(bytes.size());
    out_.WriteRaw(bytes.data(), static_cast<int>(bytes.size()));
  }

 private:
  google::protobuf::io::StringOutputStream stream_;
  google::protobuf::io::CodedOutputStream out_;  // the string is complete only after its destruction
};

// ---- reading ----

// A cursor over a stream of `size` bytes, at most kFrameBytesMax.
class Reader {
 public:
  Reader(ZeroCopyInputStream* stream, size_t size) : in_(stream), size_(size) {}

  size_t position() const { return static_cast<size_t>(in_.CurrentPosition()); }
  size_t remaining() const { return size_ - position(); }

  // Reads up to ten bytes; bits beyond 64 are dropped.
  bool Varint(uint64_t* out) { return in_.ReadVarint64(out); }
  bool Fixed(uint32_t* out) { return in_.ReadLittleEndian32(out); }
  bool Fixed(uint64_t* out) { return in_.ReadLittleEndian64(out); }
  // REQUIRED: n <= remaining().
  void Skip(size_t n) { in_.Skip(static_cast<int>(n)); }
  // Calls use(span) for each piece of the next n bytes. REQUIRED: n <= remaining().
  template <typename Use>
  void Take(size_t n, Use use) {
    while (n > 0) {
      const void* data = nullptr;
      int size = 0;
      CAIRN_CHECK(in_.GetDirectBufferPointer(&data, &size), "ExchangeFrame: more was taken than remained");
      const size_t part = std::min(n, static_cast<size_t>(size));
      use(ByteSpan(static_cast<const uint8_t*>(data), part));
      in_.Skip(static_cast<int>(part));
      n -= part;
    }
  }

 private:
  google::protobuf::io::CodedInputStream in_;
  const size_t size_;
};

absl::Status Malformed(size_t position, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrFormat("not an ExchangeFrame: %s at byte %d", what, position));
}

// The fields that DecodeFrame collects for Frame::status.
struct StatusFields {
  int32_t code = 0;
  std::string message;
};

void SetNumber(uint32_t field, uint64_t v, Frame* f, StatusFields* status) {
  switch (field) {
    case kKind: f->kind = static_cast<Frame::Kind>(static_cast<int32_t>(v)); break;
    case kRequestId: f->request_id = v; break;
    case kJobId: f->job = JobId(v); break;
    case kPartition: f->partition = PartitionId(static_cast<uint32_t>(v)); break;
    case kGeneration: f->generation = Generation(v); break;
    case kReplicaFirst: f->replica_first = ReplicaId(static_cast<int32_t>(static_cast<uint32_t>(v))); break;
    case kReplicaCount: f->replica_count = static_cast<uint32_t>(v); break;
    case kSequence: f->sequence = v; break;
    case kVersion: f->version = v; break;
    case kWantVersion: f->want_version = v; break;
    case kExamples: f->examples = v; break;
    case kDtype: f->dtype = static_cast<v1::DataType>(static_cast<int32_t>(v)); break;
    case kPayloadOffset: f->payload_offset = v; break;
    case kPayloadTotal: f->payload_total = v; break;
    case kStatusCode: status->code = static_cast<int32_t>(v); break;
    case kReplyDtype: f->reply_dtype = static_cast<v1::DataType>(static_cast<int32_t>(v)); break;
    case kTensor: f->tensor = static_cast<uint32_t>(v); break;
    case kTensors: f->tensors = static_cast<uint32_t>(v); break;
    case kEmaOverwrite: f->ema_overwrite = v != 0; break;
    case kNotFinite: f->not_finite = v != 0; break;
    default: break;  // unknown fields are ignored
  }
}

void TakeString(Reader* in, size_t n, std::string* out) {
  out->clear();
  in->Take(n, [&](ByteSpan piece) { out->append(reinterpret_cast<const char*>(piece.data()), piece.size()); });
}

absl::Status TakeBounded(Reader* in, size_t n, std::string_view what, size_t most, std::string* out) {
  if (n > most) return Malformed(in->position(), absl::StrFormat("%s of %d bytes, more than %d", what, n, most));
  TakeString(in, n, out);
  return absl::OkStatus();
}

absl::Status ReadLengthDelimited(uint32_t field, Reader* in, DecodedFrame* out, StatusFields* status) {
  const size_t at = in->position();
  uint64_t n;
  if (!in->Varint(&n)) return Malformed(at, "a length that does not end");
  if (n > in->remaining()) {
    return Malformed(at, absl::StrFormat("field %d of %d bytes where %d are left", field, n, in->remaining()));
  }
  if (field == kPayload) {
    if (n > kFramePayloadBytesMax) {
      return Malformed(
          at, absl::StrFormat("a payload of %d bytes, more than %d; send it in chunks", n, kFramePayloadBytesMax));
    }
    out->payload.clear();
    out->payload_size = n;
    in->Take(n, [&](ByteSpan piece) { out->payload.push_back(piece); });
  } else if (field == kStatusMessage) {
    if (n > kFrameHeaderBytesMax) return Malformed(at, absl::StrFormat("a status_message of %d bytes", n));
    TakeString(in, n, &status->message);
  } else if (field == kImage) {
    return TakeBounded(in, n, "an image", kImageHeaderBytesMax, &out->frame.image);
  } else if (field == kScalars) {
    return TakeBounded(in, n, "scalars", kFrameScalarsBytesMax, &out->frame.scalars);
  } else if (field == kFigures) {
    return TakeBounded(in, n, "figures", kFrameSumsBytesMax, &out->frame.figures);
  } else {
    in->Skip(n);
  }
  return absl::OkStatus();
}

absl::Status ReadField(Reader* in, DecodedFrame* out, StatusFields* status) {
  const size_t at = in->position();
  uint64_t tag;
  if (!in->Varint(&tag) || tag > UINT32_MAX) return Malformed(at, "a tag that does not end");
  const uint32_t field = static_cast<uint32_t>(tag >> 3);
  if (field == 0) return Malformed(at, "field number 0");
  switch (tag & 7) {
    case kVarint: {
      uint64_t v;
      if (!in->Varint(&v)) return Malformed(at, absl::StrFormat("field %d: a number that does not end", field));
      SetNumber(field, v, &out->frame, status);
      return absl::OkStatus();
    }
    case kFixed32: {
      uint32_t bits;
      if (!in->Fixed(&bits)) return Malformed(at, absl::StrFormat("field %d: cut off", field));
      if (field == kLearningRate) out->frame.learning_rate = std::bit_cast<float>(bits);
      if (field == kLossScale) out->frame.loss_scale = std::bit_cast<float>(bits);
      return absl::OkStatus();
    }
    case kFixed64: {
      uint64_t bits;
      if (!in->Fixed(&bits)) return Malformed(at, absl::StrFormat("field %d: cut off", field));
      if (field == kNormsXxh3) out->frame.norms_xxh3 = bits;
      return absl::OkStatus();
    }
    case kLengthDelimited: return ReadLengthDelimited(field, in, out, status);
    default: return Malformed(at, absl::StrFormat("field %d: wire type %d", field, tag & 7));
  }
}

void WriteHeader(const Frame& f, Writer& w) {
  w.Signed(kKind, f.kind);                                                // (A)
  w.Number(kRequestId, f.request_id);                                     // (B)
  w.Number(kJobId, f.job.value);                                          // (C)
  w.Number(kPartition, f.partition.value);                                // (D)
  w.Number(kGeneration, f.generation.value);                              // (E)
  w.Number(kReplicaFirst, static_cast<uint32_t>(f.replica_first.value));  // (F)
  w.Number(kReplicaCount, f.replica_count);                               // (G)
  w.Number(kSequence, f.sequence);                                        // (H)
  w.Number(kVersion, f.version);                                          // (I)
  if (f.want_version.has_value()) {                                       // (J)
    w.Tag(kWantVersion, kVarint);
    w.Varint(*f.want_version);
  }
  w.Number(kExamples, f.examples);             // (K)
  w.Float(kLearningRate, f.learning_rate);     // (L)
  w.Signed(kDtype, f.dtype);                   // (M)
  w.Number(kPayloadOffset, f.payload_offset);  // (N)
  w.Number(kPayloadTotal, f.payload_total);    // (O)
  if (!f.status.ok()) {
    w.Signed(kStatusCode, f.status.raw_code());  // (P)
    const std::string_view message =
        CutUtf8({f.status.message().data(), f.status.message().size()}, kStatusMessageBytesMax);
    w.Bytes(kStatusMessage, message);  // (Q)
  }
  w.Signed(kReplyDtype, f.reply_dtype);              // (R)
  w.Number(kTensor, f.tensor);                       // (S)
  w.Number(kTensors, f.tensors);                     // (T)
  w.Bytes(kImage, f.image);                          // (U)
  w.Bytes(kScalars, f.scalars);                      // (V)
  w.Number(kEmaOverwrite, f.ema_overwrite ? 1 : 0);  // (W)
  w.Fixed64(kNormsXxh3, f.norms_xxh3);               // (X)
  w.Float(kLossScale, f.loss_scale);                 // (Y)
  w.Number(kNotFinite, f.not_finite ? 1 : 0);        // (Z)
  w.Bytes(kFigures, f.figures);                      // (AA)
  if (!f.payload.empty()) {                          // (AB)
    w.Tag(kPayload, kLengthDelimited);
    w.Varint(f.payload.size());
  }
}

}  // namespace

std::string EncodeFrameHeader(const Frame& f) {
  std::string out;
  out.reserve(128);
  {
    Writer w(&out);
    WriteHeader(f, w);
  }
  return out;
}

absl::StatusOr<DecodedFrame> DecodeFrame(absl::Span<const ByteSpan> slices) {
  DecodedFrame out;
  StatusFields status;
  size_t size = 0;
  for (ByteSpan s : slices) size += s.size();
  if (size > kFrameBytesMax) return Malformed(0, absl::StrFormat("%d bytes, more than %d,", size, kFrameBytesMax));
  std::deque<google::protobuf::io::ArrayInputStream> parts;
  std::vector<ZeroCopyInputStream*> streams;
  for (ByteSpan s : slices) streams.push_back(&parts.emplace_back(s.data(), static_cast<int>(s.size())));
  google::protobuf::io::ConcatenatingInputStream stream(streams.data(), static_cast<int>(streams.size()));
  Reader in(&stream, size);
  while (in.remaining() > 0) CAIRN_RETURN_IF_ERROR(ReadField(&in, &out, &status));
  if (status.code != 0) {
    out.frame.status = absl::Status(static_cast<absl::StatusCode>(status.code), status.message);
  } else if (out.frame.kind == v1::ExchangeFrame::ERROR) {
    return absl::InvalidArgumentError("not an ExchangeFrame: an ERROR without a status_code");
  }
  return out;
}

void CopyPayload(const DecodedFrame& decoded, absl::Span<uint8_t> out) {
  CAIRN_CHECK(out.size() >= decoded.payload_size, "CopyPayload: too little room");
  uint8_t* to = out.data();
  for (ByteSpan piece : decoded.payload) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

}  // namespace cairn
