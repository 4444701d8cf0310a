// Goal: what a client of PartitionCore may request, and what it gets: given versions, short types, answers without
// values. Old generations, waiters beyond the bound and bad requests are refused and change nothing.
#include <limits>

#include "common/tensor/dtype.h"
#include "tests/unit/server/partition_core_fixture.h"

namespace cairn {
namespace {

// ---- versions on request ----

TEST_F(PartitionCoreTest, PullGivesThePresentThePreviousOrAFutureVersion) {
  Start(UpdateMode::kSynchronous, 1);
  SendAndPersist(Push(0, 1, 1, 8));
  SendAndPersist(Push(0, 1, 2, 8));
  const auto pull = [&](std::optional<uint64_t> want) {
    Frame f = PullFrame(config_, 77);
    f.want_version = want;
    return f;
  };
  EXPECT_EQ(Send(pull(std::nullopt)).replies.at(0).frame.version, 2u);
  EXPECT_EQ(Send(pull(2)).replies.at(0).frame.payload.floats()[0], -2.0f);
  const PartitionEffects previous = Send(pull(1));
  EXPECT_EQ(previous.replies.at(0).frame.version, 1u);
  EXPECT_EQ(previous.replies.at(0).frame.payload.floats()[0], -1.0f);
  ExpectError(Send(pull(0)), absl::StatusCode::kFailedPrecondition, "want_version 0 is gone");

  EXPECT_TRUE(Send(pull(4)).replies.empty());
  EXPECT_EQ(SendAndPersist(Push(0, 1, 3, 8)).replies.size(), 1u);
  const PartitionEffects reached = SendAndPersist(Push(0, 1, 4, 8));
  ASSERT_EQ(reached.replies.size(), 2u);
  EXPECT_EQ(reached.replies[0].frame.request_id, 77u);
  EXPECT_EQ(reached.replies[0].frame.version, 4u);
}

TEST_F(PartitionCoreTest, ThePreviousVersionIsKeptUntilThePresentOneIsInUse) {
  Start(UpdateMode::kSynchronous, 2);
  SendAndPersist(Push(0, 2, 1, 8));
  Frame pull = PullFrame(config_, 1);
  pull.want_version = 0;
  EXPECT_EQ(Send(pull).replies.at(0).frame.version, 0u);
  SendAndPersist(Push(0, 1, 1, 8));  // a repetition says nothing of other partitions
  EXPECT_EQ(Send(pull).replies.at(0).frame.version, 0u);
  SendAndPersist(Push(0, 1, 2, 8));
  ExpectError(Send(pull), absl::StatusCode::kFailedPrecondition, "gone");
}

TEST_F(PartitionCoreTest, AWaitingPullIsToldToTryAgainAPushIsNot) {
  Start(UpdateMode::kSynchronous, 2);
  Send(Push(0, 1, 1, 8));
  Frame pull = PullFrame(config_, 9);
  pull.want_version = 1;
  Send(pull);
  EXPECT_TRUE(core_->Step(TickEvent{}, kNow + kPullWaitMax - absl::Seconds(1)).replies.empty());
  ExpectError(core_->Step(TickEvent{}, kNow + kPullWaitMax), absl::StatusCode::kUnavailable, "version 0");
  EXPECT_EQ(core_->waiting(), 1u);
}

TEST_F(PartitionCoreTest, ShortTypesAreConvertedOnceForAll) {
  Start(UpdateMode::kSynchronous, 2);
  Buffer half = Buffer::Allocate(config_.size() * 2);
  FromFloat(Filled(config_, 8).floats(), v1::BFLOAT16, {half.mutable_data(), half.size()});
  for (uint32_t r : {0u, 1u}) {
    Frame push = PushFrame(config_, r, 1, 1, half);
    push.dtype = push.reply_dtype = v1::BFLOAT16;
    const PartitionEffects e = SendAndPersist(push);
    if (r == 0) continue;
    ASSERT_EQ(e.replies.size(), 2u);
    EXPECT_EQ(e.replies[0].frame.dtype, v1::BFLOAT16);
    EXPECT_EQ(e.replies[0].frame.payload.size(), half.size());
    EXPECT_EQ(e.replies[0].frame.payload.data(), e.replies[1].frame.payload.data());
    std::vector<float> back(config_.size());
    ToFloat({e.replies[0].frame.payload.data(), half.size()}, v1::BFLOAT16, absl::MakeSpan(back));
    EXPECT_EQ(back[0], -1.0f);
  }
  Frame pull = PullFrame(config_, 1);
  pull.reply_dtype = v1::FLOAT16;
  pull.want_version = 0;
  EXPECT_EQ(Send(pull).replies.at(0).frame.payload.size(), half.size());
}

TEST_F(PartitionCoreTest, ConvertedValuesAreOfTheVersionThatTheReplyNames) {
  Start(UpdateMode::kSynchronous, 1);
  Frame push = Push(0, 1, 1, 8);
  push.reply_dtype = v1::BFLOAT16;
  PartitionEffects e = Send(push);
  Frame pull = PullFrame(config_, 1);
  pull.reply_dtype = v1::BFLOAT16;
  const Buffer before = Send(pull).replies.at(0).frame.payload;  // while the update is under way
  e.persists.clear();
  const Frame after = core_->Step(PersistedEvent{1}, kNow).replies.at(0).frame;
  EXPECT_EQ(after.version, 1u);
  EXPECT_FALSE(SameBits(after.payload, before));
}

// A client that keeps no values: the answer confirms the update and has no values. A pull always asks for values,
// whatever its fields say.
TEST_F(PartitionCoreTest, APushThatWantsNoValuesGetsNone) {
  Start(UpdateMode::kSynchronous, 1);
  Frame push = Push(0, 1, 1, 8);
  push.reply_dtype = v1::DATA_TYPE_UNSPECIFIED;
  PartitionEffects e = Send(push);
  e.persists.clear();
  const Frame answer = core_->Step(PersistedEvent{1}, kNow).replies.at(0).frame;
  EXPECT_EQ(answer.kind, v1::ExchangeFrame::VALUES);
  EXPECT_EQ(answer.version, 1u);
  EXPECT_EQ(answer.sequence, 1u);
  EXPECT_EQ(answer.payload.size(), 0u);
  EXPECT_EQ(answer.payload_total, 0u);
  EXPECT_EQ(Send(push).replies.at(0).frame.payload.size(), 0u) << "a repetition";
  Frame pull = PullFrame(config_, 1);
  pull.reply_dtype = v1::DATA_TYPE_UNSPECIFIED;
  EXPECT_EQ(Send(pull).replies.at(0).frame.payload.size(), config_.size() * sizeof(float));
}

// ---- assignment, clients, limits ----

TEST_F(PartitionCoreTest, GenerationsFence) {
  Start(UpdateMode::kSynchronous, 1);
  Frame push = Push(0, 1, 1, 8);
  push.generation = Generation(4);
  ExpectError(Send(push), absl::StatusCode::kFailedPrecondition, "fenced");
  push.generation = Generation(6);
  ExpectError(Send(push), absl::StatusCode::kUnavailable, "has not reached");
  core_->Step(AssignEvent{Generation(6)}, kNow);
  core_->Step(AssignEvent{Generation(5)}, kNow);  // superseded: ignored
  EXPECT_EQ(core_->generation(), Generation(6));
  const PartitionEffects e = Send(push);
  ASSERT_EQ(e.persists.size(), 1u);
  EXPECT_EQ(e.persists[0].entry.generation(), 6u);
  EXPECT_EQ(Send(PullFrame(config_, 1)).replies.at(0).frame.kind, v1::ExchangeFrame::VALUES) << "0: whatever it is";
  Frame pull = PullFrame(config_, 2);
  pull.generation = Generation(5);
  ExpectError(Send(pull), absl::StatusCode::kFailedPrecondition, "fenced");
}

TEST_F(PartitionCoreTest, AnOpenStepOutlivesANewGeneration) {
  Start(UpdateMode::kSynchronous, 2);
  SendAndPersist(Push(0, 1, 1, 8));
  core_->Step(AssignEvent{Generation(6)}, kNow);
  Frame push = Push(1, 1, 1, 8);
  push.generation = Generation(6);
  EXPECT_EQ(SendAndPersist(push).replies.size(), 2u);
}

TEST_F(PartitionCoreTest, AClientThatIsGoneIsNotAnsweredButItsGradientCounts) {
  Start(UpdateMode::kSynchronous, 2);
  SendAndPersist(Push(0, 1, 1, 8), 20);
  core_->Step(ClientGoneEvent{20}, kNow);
  const PartitionEffects e = SendAndPersist(Push(1, 1, 1, 8), 21);
  ASSERT_EQ(e.replies.size(), 1u);
  EXPECT_EQ(e.replies[0].client, 21u);
  EXPECT_EQ(FirstValue(), -1.0f);
}

TEST_F(PartitionCoreTest, WaitersAreBounded) {
  Start(UpdateMode::kSynchronous, 2);
  const size_t limit = kWaitersPerReplicaMax * 2 + kWaitersExtraMax;
  Frame pull = PullFrame(config_, 1);
  pull.want_version = 9;
  for (size_t i = 0; i < limit; ++i) EXPECT_TRUE(Send(pull).replies.empty());
  ExpectError(Send(pull), absl::StatusCode::kResourceExhausted, "retry");
  EXPECT_EQ(core_->waiting(), limit);
}

TEST_F(PartitionCoreTest, BadRequestsAreRefusedAndChangeNothing) {
  struct Bad {
    const char* part;
    std::function<void(Frame&)> spoil;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  };
  const std::vector<Bad> table = {
      {"replica_count 0", [](Frame& f) { f.replica_count = 0; }},
      {"not a node", [](Frame& f) { f.replica_first = ReplicaId(1), f.replica_count = 2; }},
      {"not a node", [](Frame& f) { f.replica_first = ReplicaId(4); }},
      {"not a node", [](Frame& f) { f.replica_first = ReplicaId(-1); }},
      {"not a node", [](Frame& f) { f.replica_count = 0xffffffff; }},
      {"sequence: 0", [](Frame& f) { f.sequence = 0; }},
      {"learning_rate", [](Frame& f) { f.learning_rate = std::numeric_limits<float>::quiet_NaN(); }},
      {"learning_rate", [](Frame& f) { f.learning_rate = std::numeric_limits<float>::infinity(); }},
      {"learning_rate", [](Frame& f) { f.learning_rate = -1; }},
      {"examples", [](Frame& f) { f.examples = std::numeric_limits<uint64_t>::max(); }},
      {"examples = 0", [](Frame& f) { f.examples = 0; }},
      {"dtype: 0", [](Frame& f) { f.dtype = v1::DATA_TYPE_UNSPECIFIED; }},
      {"dtype: 9", [](Frame& f) { f.dtype = static_cast<v1::DataType>(9); }},
      {"64 bytes as FLOAT16", [](Frame& f) { f.dtype = v1::FLOAT16; }},
      {"payload: 0 bytes", [](Frame& f) { f.payload = {}; }},
      {"payload: 124 bytes", [](Frame& f) { f.payload = f.payload.Slice(0, 124); }},
      {"reply_dtype: 9", [](Frame& f) { f.reply_dtype = static_cast<v1::DataType>(9); }},
      {"kind: 3", [](Frame& f) { f.kind = v1::ExchangeFrame::VALUES; }},
      {"kind: 0", [](Frame& f) { f.kind = v1::ExchangeFrame::KIND_UNSPECIFIED; }},
      {"job 4", [](Frame& f) { f.job = JobId(4); }, absl::StatusCode::kNotFound},
      {"partition 8", [](Frame& f) { f.partition = PartitionId(8); }, absl::StatusCode::kNotFound},
      {"waits for update 1", [](Frame& f) { f.sequence = 7; }, absl::StatusCode::kOutOfRange},
  };
  Start(UpdateMode::kSynchronous, 4);
  for (const Bad& bad : table) {
    SCOPED_TRACE(bad.part);
    Frame f = Push(0, 4, 1, 8);
    bad.spoil(f);
    ExpectError(Send(f), bad.code, bad.part);
    EXPECT_EQ(core_->waiting(), 0u);
  }
  Frame pull = PullFrame(config_, 1);
  pull.replica_first = ReplicaId(4);
  pull.replica_count = 1;
  ExpectError(Send(pull), absl::StatusCode::kInvalidArgument, "4 replicas");
  EXPECT_EQ(SendAndPersist(Push(0, 4, 1, 8)).replies.size(), 1u) << "a good push still goes through";

  Start(UpdateMode::kAsynchronous, 4);
  ExpectError(Send(Push(0, 2, 1, 8)), absl::StatusCode::kInvalidArgument, "one replica a push");
}

TEST_F(PartitionCoreTest, APayloadThatLiesAskewIsTakenToo) {
  Start(UpdateMode::kSynchronous, 1);
  Buffer wide = Buffer::Zeros(config_.size() * 4 + 1);
  const Buffer gradient = Filled(config_, 8);
  std::memcpy(wide.mutable_data() + 1, gradient.data(), gradient.size());
  SendAndPersist(PushFrame(config_, 0, 1, 1, wide.Slice(1, gradient.size())));
  EXPECT_EQ(FirstValue(), -1.0f);
}

}  // namespace
}  // namespace cairn
