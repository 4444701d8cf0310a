// Frames and the coordinator's word into PartitionCore, as primary and as backup, with a store behind it: no crash; a
// restart finds what was there. What the core sends to its backups is answered in any way, or comes back to it when it
// is a backup itself.
//
//   input := mode:u8 (op:u8 arguments)*
#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>

#include "common/storage/kv_store.h"
#include "common/tensor/frame_codec.h"
#include "server/core/dense_partition.h"
#include "server/core/partition_core.h"
#include "server/storage/persistence.h"
#include "tests/fuzz/partition_seed.h"

namespace cairn {
namespace {

constexpr size_t kSentMax = 32;

class Partition {
 public:
  explicit Partition(const PartitionConfig& config) : config_(config) { Restart(); }

  void Run(ByteSource& in) {
    while (!in.empty()) Op(in);
    Restart();
  }

 private:
  void Op(ByteSource& in) {
    switch (in.Below(15)) {
      case 0:
      case 1: return Do(FrameEvent{in.Below(4), Push(in)});
      case 2: return Do(FrameEvent{in.Below(4), AnyFrame(in)});
      case 3: return Raw(in);
      case 4: now_ += absl::Seconds(static_cast<int64_t>(in.Below(100))); return Do(TickEvent{});
      case 5: return Do(ClientGoneEvent{in.Below(4)});
      case 6:
        if (core_->image_due()) Do(TakeImageEvent{}, in.Below(4) != 0);
        return;
      case 7:
        config_.generation = Generation(config_.generation.value + in.Below(2));
        return Do(AssignEvent{Generation(config_.generation.value), in.Below(2) == 1, Backups(in)});
      case 8: return Restart();
      case 9: return Do(LinkUpEvent{Address(in), ++epoch_});
      case 10: return Do(LinkDownEvent{Address(in), epoch_ - in.Below(2)});
      case 11:
        if (core_->image_to_send(now_)) Do(SendImageEvent{});
        return;
      case 12: return Answer(in);
      case 13: return Return(in);
      case 14: return Do(FrameEvent{in.Below(4), Clip(in)});
    }
  }

  static std::string Address(ByteSource& in) { return "host:" + std::to_string(1 + in.Below(2)); }

  static std::vector<v1::BackupRoute> Backups(ByteSource& in) {
    std::vector<v1::BackupRoute> backups(in.Below(3));
    for (v1::BackupRoute& backup : backups) {
      backup.set_node("ps" + std::to_string(in.Below(2)));
      backup.set_address(Address(in));
      backup.set_in_sync(in.Below(2) == 1);
    }
    return backups;
  }

  // A backup's answer to the oldest request to it: right, wrong or an error.
  void Answer(ByteSource& in) {
    if (sent_.empty()) return;
    const PeerSend send = std::move(sent_.front());
    sent_.pop_front();
    Frame f = send.frames.back();
    f.payload = {};
    f.kind = in.Below(4) == 0 ? v1::ExchangeFrame::ERROR : v1::ExchangeFrame::ACK;
    if (f.kind == v1::ExchangeFrame::ERROR)
      f.status = absl::Status(static_cast<absl::StatusCode>(1 + in.Below(16)), "no");
    if (in.Below(4) == 0) f.version = in.Edge();
    if (in.Below(8) == 0) f.request_id = in.Edge();
    Do(PeerFrameEvent{send.address, send.epoch, std::move(f)});
  }

  // What was sent to a backup comes to this core, as if from another primary.
  void Return(ByteSource& in) {
    if (sent_.empty()) return;
    const PeerSend send = std::move(sent_.front());
    sent_.pop_front();
    const uint64_t client = in.Below(4), generation = config_.generation.value + in.Below(2);
    for (const Frame& frame : send.frames) {
      Frame f = frame;
      f.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
      f.generation = Generation(generation);
      if (in.Below(16) == 0) f.version = in.Edge();
      Do(FrameEvent{client, std::move(f)});
    }
  }

  // A push as a worker sends it.
  Frame Push(ByteSource& in) {
    Frame f;
    f.kind = v1::ExchangeFrame::PUSH;
    f.request_id = in.Byte();
    f.job = config_.job;
    f.partition = config_.partition;
    f.generation = config_.generation;
    const size_t who = in.Below(3);
    f.replica_first = ReplicaId(who == 1 ? 1 : 0);
    f.replica_count = who == 2 ? 2 : 1;
    f.sequence = core_->state().sequences[who == 1 ? 1 : 0] + in.Below(3);
    f.examples = in.Below(3);
    f.learning_rate = 0.5f;
    f.dtype = v1::FLOAT32;
    f.reply_dtype = v1::FLOAT32;
    f.ema_overwrite = DenseKind::Of(config_).optimizer.ema && in.Below(4) == 0;
    if (config_.loss_scale) {
      f.loss_scale = core_->state().loss_scale.scale;
      if (in.Below(8) == 0) f.loss_scale = static_cast<float>(in.Edge());
      f.not_finite = f.examples == 0 && in.Below(2) == 0;
    }
    if (f.examples > 0) f.payload = Gradient(in, static_cast<size_t>(config_.size()) * sizeof(float));
    f.payload_total = f.payload.size();
    if (in.Below(2) == 0) f.figures = Figures(in);
    return f;
  }

  static std::string Figures(ByteSource& in) {
    v1::EpochFigures figures;
    figures.set_epoch(static_cast<int32_t>(in.Below(4) == 0 ? in.Edge() : in.Below(3)));
    figures.mutable_train()->set_examples(in.Below(4) == 0 ? in.Edge() : in.Below(9));
    figures.mutable_train()->set_loss(in.Below(4) == 0 ? std::numeric_limits<double>::quiet_NaN() : 0.25);
    figures.set_replica_steps(in.Below(4) == 0 ? in.Edge() : 1);
    return figures.SerializeAsString();
  }

  Frame Clip(ByteSource& in) {
    Frame f = Push(in);
    f.kind = v1::ExchangeFrame::CLIP;
    f.payload = Buffer();
    f.payload_total = 0;
    const double factors[] = {config_.loss_scale ? 1 : 0.5, std::numeric_limits<double>::quiet_NaN(),
                              config_.loss_scale ? 0 : 2.0};
    f.scalars = EncodeFactors({&factors[in.Below(3)], 1});
    f.norms_xxh3 = in.Below(8) == 0 ? in.Edge() : norms_xxh3_;
    if (in.Below(8) == 0) f.scalars.resize(in.Byte());
    return f;
  }

  static Buffer Gradient(ByteSource& in, size_t size) {
    Buffer out = Buffer::Allocate(size);
    std::fill_n(out.mutable_data(), size, in.Byte());
    return out;
  }

  Frame AnyFrame(ByteSource& in) {
    Frame f = Push(in);
    f.kind = static_cast<Frame::Kind>(in.Below(12));
    f.generation = Generation(f.generation.value + in.Below(3) - 1);
    if (in.Below(8) == 0) f.job = JobId(in.Edge());
    if (in.Below(8) == 0) f.partition = PartitionId(static_cast<uint32_t>(in.Edge()));
    f.replica_first = ReplicaId(static_cast<int32_t>(in.Edge()));
    f.replica_count = static_cast<uint32_t>(in.Edge());
    if (in.Below(2) == 0) f.sequence = in.Edge();
    f.version = in.Edge();
    if (in.Below(2) == 0) f.want_version = in.Edge();
    f.examples = in.Edge();
    if (in.Below(4) == 0) f.learning_rate = static_cast<float>(in.Edge());
    f.dtype = static_cast<v1::DataType>(in.Below(8));
    f.reply_dtype = static_cast<v1::DataType>(in.Below(8));
    if (in.Below(4) == 0) f.scalars.assign(in.Byte(), static_cast<char>(in.Byte()));
    if (in.Below(4) == 0) f.norms_xxh3 = in.Edge();
    if (in.Below(4) == 0) f.figures.assign(in.Byte(), static_cast<char>(in.Byte()));
    f.ema_overwrite = in.Below(4) == 0;
    if (in.Below(2) == 0) f.payload = Gradient(in, in.Byte() * 4 + in.Below(2));
    f.payload_total = f.payload.size();
    return f;
  }

  void Raw(ByteSource& in) {
    const std::string_view bytes = in.Block();
    const ByteSpan whole(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    absl::StatusOr<DecodedFrame> decoded = DecodeFrame({&whole, 1});
    if (!decoded.ok()) return;
    Buffer payload = Buffer::Allocate(decoded->payload_size);
    CopyPayload(*decoded, absl::MakeSpan(payload.mutable_data(), payload.size()));
    decoded->frame.payload = std::move(payload);
    Do(FrameEvent{1, std::move(decoded->frame)});
  }

  void Do(PartitionEvent event, bool image_ok = true) {
    absl::StatusOr<PartitionEffects> effects = RunEvent(*core_, persistence_, std::move(event), now_);
    MustBeOk(effects.status());
    CAIRN_CHECK(core_->waiting() <= kWaitersExtraMax + kWaitersPerReplicaMax * config_.replicas, "too many wait");
    for (const PartitionReply& reply : effects->replies) {
      if (reply.frame.kind == v1::ExchangeFrame::NORMS) norms_xxh3_ = HashOfNorms(reply.frame.scalars);
    }
    for (PeerSend& send : effects->sends) {
      if (sent_.size() < kSentMax && !send.frames.empty()) sent_.push_back(std::move(send));
    }
    if (!effects->image) return;
    const uint64_t version = effects->image->header.version();
    if (image_ok) MustBeOk(persistence_.WriteImage(config_, *effects->image));
    Do(ImageWrittenEvent{version, image_ok});
  }

  void Restart() {
    absl::StatusOr<PartitionState> state = persistence_.Recover(config_);
    MustBeOk(state.status());
    if (core_ != nullptr) {
      const PartitionState& before = core_->state();
      // An update that waits for a backup's answer is stored and not applied.
      CAIRN_CHECK(state->version >= before.version, "an older version");
      const bool same = state->version == before.version;
      CAIRN_CHECK(!same || state->sequences == before.sequences, "other sequences");
      CAIRN_CHECK(!same || state->loss_scale == before.loss_scale, "another loss scale");
      const Buffer &now = DenseContents::Of(*state).values(), &then = DenseContents::Of(before).values();
      CAIRN_CHECK(!same || std::memcmp(now.data(), then.data(), then.size()) == 0, "other values");
    }
    sent_.clear();
    core_ = std::make_unique<PartitionCore>(config_, *std::move(state));
  }

  PartitionConfig config_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000'000);
  std::unique_ptr<KvStore> store_ = NewMemoryKvStore();
  Persistence persistence_{*store_};
  std::unique_ptr<PartitionCore> core_;
  uint64_t epoch_ = 0;
  uint64_t norms_xxh3_ = 0;  // of the last NORMS
  std::deque<PeerSend> sent_;
};

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::ByteSource in(data, size);
  cairn::Partition partition(cairn::SmallPartition(in));
  partition.Run(in);
  return 0;
}
