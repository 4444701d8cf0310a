// Goal: the codec and protobuf's own agree: each reads what the other wrote, for every field; and any other bytes give
// INVALID_ARGUMENT.
#include "common/tensor/frame_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "common/tensor/limits.h"

namespace cairn {
namespace {

ByteSpan Bytes(const std::string& s) { return {reinterpret_cast<const uint8_t*>(s.data()), s.size()}; }

absl::StatusOr<DecodedFrame> Decode(const std::string& s) {
  const ByteSpan one = Bytes(s);
  return DecodeFrame(absl::MakeConstSpan(&one, 1));
}

std::string PayloadOf(const DecodedFrame& d) {
  std::string out(d.payload_size, '\0');
  CopyPayload(d, absl::MakeSpan(reinterpret_cast<uint8_t*>(out.data()), out.size()));
  return out;
}

// The decoder's result as the protobuf message that it stands for.
v1::ExchangeFrame ToProto(const Frame& f, const std::string& payload) {
  v1::ExchangeFrame m;
  m.set_kind(f.kind);
  m.set_request_id(f.request_id);
  m.set_job_id(f.job.value);
  m.set_partition(f.partition.value);
  m.set_generation(f.generation.value);
  m.set_replica_first(static_cast<uint32_t>(f.replica_first.value));
  m.set_replica_count(f.replica_count);
  m.set_sequence(f.sequence);
  m.set_version(f.version);
  if (f.want_version.has_value()) m.set_want_version(*f.want_version);
  m.set_examples(f.examples);
  m.set_learning_rate(f.learning_rate);
  m.set_dtype(f.dtype);
  m.set_payload_offset(f.payload_offset);
  m.set_payload_total(f.payload_total);
  m.set_status_code(f.status.raw_code());
  m.set_status_message(std::string(f.status.message()));
  m.set_reply_dtype(f.reply_dtype);
  m.set_tensor(f.tensor);
  m.set_tensors(f.tensors);
  m.set_image(f.image);
  m.set_scalars(f.scalars);
  m.set_ema_overwrite(f.ema_overwrite);
  m.set_norms_xxh3(f.norms_xxh3);
  m.set_loss_scale(f.loss_scale);
  m.set_not_finite(f.not_finite);
  m.set_figures(f.figures);
  m.set_payload(payload);
  return m;
}

Frame ToFrame(const v1::ExchangeFrame& m) {
  Frame f;
  f.kind = m.kind();
  f.request_id = m.request_id();
  f.job = JobId(m.job_id());
  f.partition = PartitionId(m.partition());
  f.generation = Generation(m.generation());
  f.replica_first = ReplicaId(static_cast<int32_t>(m.replica_first()));
  f.replica_count = m.replica_count();
  f.sequence = m.sequence();
  f.version = m.version();
  if (m.has_want_version()) f.want_version = m.want_version();
  f.examples = m.examples();
  f.learning_rate = m.learning_rate();
  f.dtype = m.dtype();
  f.payload_offset = m.payload_offset();
  f.payload_total = m.payload_total();
  if (m.status_code() != 0) f.status = absl::Status(static_cast<absl::StatusCode>(m.status_code()), m.status_message());
  f.reply_dtype = m.reply_dtype();
  f.tensor = m.tensor();
  f.tensors = m.tensors();
  f.image = m.image();
  f.scalars = m.scalars();
  f.ema_overwrite = m.ema_overwrite();
  f.norms_xxh3 = m.norms_xxh3();
  f.loss_scale = m.loss_scale();
  f.not_finite = m.not_finite();
  f.figures = m.figures();
  f.payload = Buffer::CopyOf(m.payload().data(), m.payload().size());
  return f;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t operator()(uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(engine_); }
  // Small and large numbers, and the edges of varints.
  uint64_t Number() {
    switch ((*this)(5)) {
      case 0: return 0;
      case 1: return (*this)(200);
      case 2: return (uint64_t{1} << (7 * (*this)(9) + 7)) - (*this)(2);
      case 3: return ~uint64_t{0};
      default: return engine_();
    }
  }
  std::string Text(size_t max) {
    std::string s((*this)(max + 1), 'x');
    for (char& c : s) c = static_cast<char>('a' + (*this)(26));
    return s;
  }

 private:
  std::mt19937_64 engine_;
};

// Each field is set or not, whatever the kind.
v1::ExchangeFrame RandomMessage(Random& random) {
  v1::ExchangeFrame m;
  m.set_kind(static_cast<v1::ExchangeFrame::Kind>(random(12)));  // 11: a kind of the future
  if (random(2)) m.set_request_id(random.Number());
  if (random(2)) m.set_job_id(random.Number());
  if (random(2)) m.set_partition(static_cast<uint32_t>(random.Number()));
  if (random(2)) m.set_generation(random.Number());
  if (random(2)) m.set_replica_first(static_cast<uint32_t>(random.Number()));
  if (random(2)) m.set_replica_count(static_cast<uint32_t>(random.Number()));
  if (random(2)) m.set_sequence(random.Number());
  if (random(2)) m.set_version(random.Number());
  if (random(2)) m.set_want_version(random.Number());
  if (random(2)) m.set_examples(random.Number());
  if (random(2)) m.set_learning_rate(random(4) ? static_cast<float>(random(1000)) / 7 : -0.0f);
  if (random(2)) m.set_dtype(static_cast<v1::DataType>(random(5)));
  if (random(2)) m.set_payload_offset(random.Number());
  if (random(2)) m.set_payload_total(random.Number());
  if (random(2) || m.kind() == v1::ExchangeFrame::ERROR) {
    m.set_status_code(random(4) ? 1 + static_cast<int32_t>(random(16)) : -static_cast<int32_t>(random(1000)) - 1);
    m.set_status_message(random.Text(random(10) ? 50 : 4000));
  }
  if (random(2)) m.set_reply_dtype(static_cast<v1::DataType>(random(5)));
  if (random(2)) m.set_tensor(static_cast<uint32_t>(random.Number()));
  if (random(2)) m.set_tensors(static_cast<uint32_t>(random.Number()));
  if (random(2)) m.set_image(random.Text(random(10) ? 40 : kImageHeaderBytesMax));
  if (random(2)) m.set_scalars(random.Text(random(10) ? 30 : kFrameScalarsBytesMax));
  if (random(2)) m.set_ema_overwrite(true);
  if (random(2)) m.set_norms_xxh3(random.Number());
  if (random(2)) m.set_loss_scale(static_cast<float>(uint64_t{1} << random(25)));
  if (random(2)) m.set_not_finite(true);
  if (random(2)) m.set_figures(random.Text(random(10) ? 30 : kFrameSumsBytesMax));
  if (random(2)) m.set_payload(random.Text(random(10) ? 60 : 100000));
  return m;
}

// Cuts s into slices at random places; some are empty.
std::vector<ByteSpan> Cut(const std::string& s, Random& random) {
  std::vector<ByteSpan> out;
  size_t at = 0;
  while (at < s.size()) {
    const size_t n = std::min<size_t>(random(random(3) ? 4 : 2000), s.size() - at);
    out.push_back(Bytes(s).subspan(at, n));
    at += n;
  }
  return out;
}

// The message's fields in a random order, with unknown fields between them.
std::string Shuffled(const v1::ExchangeFrame& m, Random& random) {
  const std::string whole = m.SerializeAsString();
  std::vector<std::string> fields;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(whole.data()),
                                            static_cast<int>(whole.size()));
  for (int begin = 0;;) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    EXPECT_TRUE(google::protobuf::internal::WireFormatLite::SkipField(&in, tag));
    fields.push_back(whole.substr(begin, in.CurrentPosition() - begin));
    begin = in.CurrentPosition();
  }
  fields.push_back("\xa0\x1f\x05");                               // field 500, varint
  fields.push_back(std::string("\xa2\x1f\x03\x0a\x0b\x0c", 6));   // field 500, 3 bytes
  fields.push_back(std::string("\xa5\x1f\0\0\0\0", 6));           // field 500, fixed32
  fields.push_back(std::string("\xa1\x1f\0\0\0\0\0\0\0\0", 10));  // field 500, fixed64
  fields.push_back(std::string("\x0a\x01z"));                     // kind with the wire type of a string
  std::string out;
  while (!fields.empty()) {
    const size_t i = random(fields.size());
    out += fields[i];
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return out;
}

TEST(FrameCodec, WritesProtobufsOwnBytes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  RecordProperty("seed", std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    v1::ExchangeFrame m = RandomMessage(random);
    if (m.status_code() == 0) m.clear_status_message();
    const Frame f = ToFrame(m);
    const std::string payload(reinterpret_cast<const char*>(f.payload.data()), f.payload.size());
    ASSERT_EQ(EncodeFrameHeader(f) + payload, m.SerializeAsString()) << "message " << i << "\n" << m.DebugString();
  }
}

TEST(FrameCodec, ReadsWhatProtobufWritesInAnyOrderAndAnySlices) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    v1::ExchangeFrame m = RandomMessage(random);
    if (m.status_code() == 0) m.clear_status_message();
    const std::string wire = random(2) ? m.SerializeAsString() : Shuffled(m, random);
    const std::vector<ByteSpan> slices = Cut(wire, random);
    const absl::StatusOr<DecodedFrame> d = DecodeFrame(slices);
    ASSERT_TRUE(d.ok()) << d.status() << " message " << i << "\n" << m.DebugString();
    ASSERT_EQ(ToProto(d->frame, PayloadOf(*d)).SerializeAsString(), m.SerializeAsString()) << "message " << i;
  }
}

TEST(FrameCodec, TheLastOfARepeatedFieldCounts) {
  v1::ExchangeFrame a, b;
  a.set_kind(v1::ExchangeFrame::PUSH);
  a.set_payload("first");
  a.set_want_version(7);
  b.set_payload("second one");
  b.set_want_version(0);
  const std::string wire = a.SerializeAsString() + b.SerializeAsString();
  const auto d = Decode(wire);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(PayloadOf(*d), "second one");
  EXPECT_EQ(d->frame.want_version, 0u);
  EXPECT_EQ(d->frame.kind, v1::ExchangeFrame::PUSH);
}

TEST(FrameCodec, ThePayloadIsNotCopied) {
  v1::ExchangeFrame m;
  m.set_kind(v1::ExchangeFrame::VALUES);
  m.set_payload(std::string(1000, 'p'));
  const std::string wire = m.SerializeAsString();
  const auto d = Decode(wire);
  ASSERT_TRUE(d.ok());
  ASSERT_EQ(d->payload.size(), 1u);
  EXPECT_EQ(reinterpret_cast<const char*>(d->payload[0].data()), wire.data() + wire.size() - 1000);
}

TEST(FrameCodec, EveryTruncationIsAnErrorOrAShorterMessage) {
  Random random(1);
  v1::ExchangeFrame m;
  while (m.payload().size() < 10 || m.status_message().size() < 5) m = RandomMessage(random);
  const std::string wire = m.SerializeAsString();
  size_t refused = 0;
  for (size_t n = 0; n < wire.size(); ++n) {
    const auto d = Decode(wire.substr(0, n));
    v1::ExchangeFrame shorter;
    const bool parses = shorter.ParseFromString(wire.substr(0, n));
    if (d.ok()) {
      EXPECT_TRUE(parses) << "at " << n;
    } else {
      ++refused;
      EXPECT_TRUE(absl::IsInvalidArgument(d.status())) << d.status();
      EXPECT_TRUE(!parses || (shorter.kind() == v1::ExchangeFrame::ERROR && shorter.status_code() == 0)) << "at " << n;
    }
  }
  EXPECT_GT(refused, wire.size() / 2);
}

TEST(FrameCodec, MutatedBytesNeverCrashAndAgreeWithProtobuf) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  int accepted = 0;
  for (int i = 0; i < 30000; ++i) {
    v1::ExchangeFrame m = RandomMessage(random);
    if (m.payload().size() > 1000) continue;
    std::string wire = Shuffled(m, random);
    for (uint64_t k = 1 + random(4); k > 0 && !wire.empty(); --k) {
      const size_t at = random(wire.size());
      switch (random(4)) {
        case 0: wire[at] = static_cast<char>(random(256)); break;
        case 1: wire[at] = static_cast<char>(wire[at] ^ (1 << random(8))); break;
        case 2: wire.erase(at, 1 + random(3)); break;
        default: wire.insert(at, 1 + random(3), static_cast<char>(random(256)));
      }
    }
    const std::vector<ByteSpan> slices = Cut(wire, random);
    const auto d = DecodeFrame(slices);
    if (!d.ok()) {
      ASSERT_TRUE(absl::IsInvalidArgument(d.status())) << d.status();
      continue;
    }
    v1::ExchangeFrame parsed;
    if (!parsed.ParseFromString(wire)) continue;  // a status_message that is not UTF-8
    ++accepted;
    if (parsed.status_code() == 0) parsed.clear_status_message();
    parsed.DiscardUnknownFields();
    ASSERT_EQ(ToProto(d->frame, PayloadOf(*d)).SerializeAsString(), parsed.SerializeAsString()) << "message " << i;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(FrameCodec, RefusesWhatIsTooLarge) {
  v1::ExchangeFrame m;
  m.set_kind(v1::ExchangeFrame::PUSH);
  m.set_payload(std::string(kFramePayloadBytesMax, 'x'));
  EXPECT_TRUE(Decode(m.SerializeAsString()).ok());
  m.set_payload(std::string(kFramePayloadBytesMax + 1, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(m.SerializeAsString()).status()));
  m.set_payload("");
  m.set_image(std::string(kImageHeaderBytesMax, 'x'));
  EXPECT_TRUE(Decode(m.SerializeAsString()).ok());
  m.set_image(std::string(kImageHeaderBytesMax + 1, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(m.SerializeAsString()).status()));
  // A length of 2^63 in a message of a few bytes.
  EXPECT_TRUE(absl::IsInvalidArgument(Decode("\xa2\x06\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(std::string("\x0b\x0c", 2)).status())) << "a group";
  EXPECT_TRUE(absl::IsInvalidArgument(Decode("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").status()))
      << "11 bytes";
}

TEST(FrameCodec, AnErrorNeedsACode) {
  v1::ExchangeFrame m;
  m.set_kind(v1::ExchangeFrame::ERROR);
  m.set_status_message("lost");
  EXPECT_TRUE(absl::IsInvalidArgument(Decode(m.SerializeAsString()).status()));
  m.set_status_code(5);
  const auto d = Decode(m.SerializeAsString());
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->frame.status, absl::NotFoundError("lost"));
}

TEST(FrameCodec, LongMessagesAreCutAtAWholeCharacter) {
  Frame f;
  f.kind = v1::ExchangeFrame::ERROR;
  std::string text(kStatusMessageBytesMax - 1, 'x');
  text += "\xc3\xa9 and more";  // e with an accent, two bytes: the limit lies between them
  f.status = absl::InternalError(text);
  v1::ExchangeFrame m;
  ASSERT_TRUE(m.ParseFromString(EncodeFrameHeader(f)));
  EXPECT_EQ(m.status_message(), std::string(kStatusMessageBytesMax - 1, 'x'));
}

TEST(FrameCodec, NothingIsAnEmptyFrame) {
  const auto d = DecodeFrame({});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->frame.kind, v1::ExchangeFrame::KIND_UNSPECIFIED);
  EXPECT_EQ(EncodeFrameHeader(Frame{}), "");
}

}  // namespace
}  // namespace cairn
