// Goal: jobs whose gradients travel in 16 bits or fewer. The values have the same bits whatever nodes are pushed and in
// whatever type; log and backups hold the gradient in the job's type and compute the primary's bits from it; entries
// without a type, of earlier versions, can be read.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/tensor/dtype.h"
#include "server/core/partition_config.h"
#include "server/storage/stored_format.h"
#include "tests/unit/server/replication_test_util.h"

namespace cairn {
namespace {

class WireTypesTest : public testing::TestWithParam<v1::DataType> {
 protected:
  PartitionConfig Of(uint32_t replicas, bool backup = false) {
    PartitionConfig c = Config(v1::LOGGED_AND_REPLICATED, backup);
    c.replicas = replicas;
    Dense(c).wire = GetParam();
    c.seed = 21;
    return c;
  }
  // Replica r's gradient of an update.
  static std::vector<float> Gradient(const PartitionConfig& c, uint32_t r, uint64_t sequence) {
    std::mt19937 random(static_cast<uint32_t>(100 * sequence) + r);
    std::normal_distribution<float> normal;
    std::vector<float> gradient(static_cast<size_t>(c.size()));
    for (float& f : gradient) f = normal(random);
    return gradient;
  }
  // The sum of a node as a worker sends it, packed or not.
  static Frame PushOf(const PartitionConfig& c, const TreeNode& node, uint64_t sequence, v1::DataType type) {
    std::vector<std::vector<float>> gradients;
    std::vector<GradientSum> leaves;
    for (uint32_t r = node.first; r < node.end(); ++r) gradients.push_back(Gradient(c, r, sequence));
    for (auto& gradient : gradients) leaves.push_back({absl::MakeSpan(gradient), 4});
    const GradientSum sum = type == v1::FLOAT32 && node.count == 1
                                ? leaves[0]
                                : SumSubtree(node, leaves, KindOf(c).RoundingOf(c, sequence));
    Buffer payload = Buffer::Allocate(BytesOf(type, sum.gradient.size()));
    FromFloat(sum.gradient, type, {payload.mutable_data(), payload.size()});
    Frame f = PushFrame(c, node.first, node.count, sequence, std::move(payload), sum.examples);
    f.dtype = type;
    f.generation = Generation(5);
    return f;
  }
};
INSTANTIATE_TEST_SUITE_P(All, WireTypesTest,
                         testing::Values(v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16, v1::INT8, v1::INT4, v1::INT2),
                         [](const auto& info) { return v1::DataType_Name(info.param); });

TEST_P(WireTypesTest, TheBitsAreThoseOfAnyNodesInAnyType) {
  const PartitionConfig config = Of(5);
  std::vector<Buffer> values;
  const std::vector<std::vector<TreeNode>> cuts = {
      {{0, 5}}, {{0, 4}, {4, 1}}, {{4, 1}, {2, 2}, {0, 2}}, {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}};
  for (const v1::DataType sent :
       {GetParam(), v1::FLOAT32}) {  // a client may send the exact gradient: it is rounded here
    for (const auto& cut : cuts) {
      Copy ps(config, AssignEvent{Generation(5), false, {}});
      for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
        for (const TreeNode& node : cut) ps.Run(FrameEvent{1, PushOf(config, node, sequence, sent)});
        ASSERT_EQ(ps.core.version(), sequence);
      }
      values.push_back(Dense(ps.core.state()).values());
    }
  }
  for (const Buffer& v : values) EXPECT_TRUE(SameBits(v, values[0]));
}

TEST_P(WireTypesTest, LogAndBackupHoldTheGradientInTheJobsType) {
  Copy primary{Of(2), PrimaryOf(5, false)};
  Copy backup{Of(2, true), AssignEvent{Generation(5), true, {}}};
  const PartitionConfig& config = primary.core.config();
  size_t replicated = 0;
  const auto pass = [&](const PartitionEffects& e) {
    for (const PeerSend& send : e.sends) {
      for (Frame f : send.frames) {
        if (f.kind == v1::ExchangeFrame::REPLICATE) {
          ++replicated;
          EXPECT_EQ(f.dtype, GetParam());
          EXPECT_EQ(f.payload.size(), BytesOf(GetParam(), 32));
        }
        f.payload = Buffer::CopyOf(f.payload.data(), f.payload.size());
        for (const PartitionReply& r : backup.Run(FrameEvent{7, std::move(f)}).replies)
          primary.Run(PeerFrameEvent{"b:1", 1, r.frame});
      }
    }
  };
  primary.Run(LinkUpEvent{"b:1", 1});
  pass(primary.Run(SendImageEvent{}));
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    primary.Run(FrameEvent{1, PushOf(config, {0, 1}, sequence, GetParam())});
    pass(primary.Run(FrameEvent{1, PushOf(config, {1, 1}, sequence, GetParam())}));
    ASSERT_EQ(primary.core.version(), sequence);
    ASSERT_EQ(backup.core.version(), sequence);
  }
  EXPECT_EQ(replicated, 3u);
  for (Copy* copy : {&primary, &backup}) {
    size_t entries = 0;
    const std::string prefix = KindPrefix(config, 'l');
    ASSERT_TRUE(copy->store
                    ->Scan(prefix,
                           [&](std::string_view, std::string_view value) {
                             v1::LogEntry entry;
                             EXPECT_TRUE(Unseal(value, entry));
                             EXPECT_EQ(DtypeOf(entry), GetParam());
                             EXPECT_EQ(value.size(), BytesOf(GetParam(), 32));
                             ++entries;
                             return true;
                           })
                    .ok());
    EXPECT_EQ(entries, 3u);
    const PartitionState recovered = copy->persistence.Recover(copy->core.config()).value();
    for (const PartitionState* state : {&backup.core.state(), &recovered}) {
      EXPECT_TRUE(SameBits(Dense(*state).values(), Dense(primary.core.state()).values()));
      for (size_t s = 0; s < Dense(*state).slots().size(); ++s)
        EXPECT_TRUE(SameBits(Dense(*state).slots()[s], Dense(primary.core.state()).slots()[s])) << s;
    }
  }
}

TEST_P(WireTypesTest, AGradientThatIsClippedOrPenalizedIsNotOfTheTypeAnyMore) {
  PartitionConfig config = Of(1);
  EXPECT_EQ(config.kind->LogDtype(config), GetParam());
  config.clip_norm = 1;
  EXPECT_EQ(config.kind->LogDtype(config), v1::FLOAT32);
  config.clip_norm = 0;
  Dense(config).penalties.emplace_back();
  EXPECT_EQ(config.kind->LogDtype(config), v1::FLOAT32);
}

// As stored by a ps that did not know types: FLOAT32, whatever the job's type.
TEST_P(WireTypesTest, AnEntryWithoutATypeIsFloat32) {
  const PartitionConfig config = Of(1);
  v1::LogEntry entry;
  entry.set_generation(5);
  entry.set_version(1);
  entry.set_replica_count(1);
  entry.set_sequence(1);
  entry.set_examples(4);
  entry.set_learning_rate(0.5f);
  const std::vector<float> gradient = Gradient(config, 0, 1);
  const Buffer bytes = Buffer::CopyOf(gradient.data(), gradient.size() * sizeof(float));
  auto store = NewMemoryKvStore();
  ASSERT_TRUE(Persistence(*store).Append(config, {entry, bytes}).ok());
  const auto recovered = Persistence(*store).Recover(config);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  PartitionState expected = PartitionState::Initial(config);
  ApplyEntry(config, entry, Buffer::CopyOf(bytes.data(), bytes.size()), expected);
  EXPECT_TRUE(SameBits(Dense(*recovered).values(), Dense(expected).values()));
}

TEST_P(WireTypesTest, AnEntryOfAnUnknownTypeOrAnotherLengthIsRefused) {
  const PartitionConfig config = Of(1);
  v1::LogEntry entry;
  entry.set_version(1);
  entry.set_replica_count(1);
  entry.set_sequence(1);
  entry.set_examples(4);
  entry.set_dtype(GetParam());
  EXPECT_TRUE(CheckEntry(config, PartitionState::Initial(config), entry, BytesOf(GetParam(), 32)).ok());
  EXPECT_EQ(CheckEntry(config, PartitionState::Initial(config), entry, BytesOf(GetParam(), 32) - 1).code(),
            absl::StatusCode::kDataLoss);
  entry.set_dtype(static_cast<v1::DataType>(17));
  EXPECT_THAT(
      std::string(CheckEntry(config, PartitionState::Initial(config), entry, 128).message()),
      testing::HasSubstr("its gradient is of type 17, which is not known; a newer cairn-ps wrote it, use that one"));
}

// A gradient that is not finite is detected after rounding too, and by all partitions alike.
TEST_P(WireTypesTest, WhatIsNotFiniteIsLeftOut) {
  PartitionConfig config = Of(2);
  config.loss_scale = LossScaleRule{};
  config.clip_scopes = {{kFiniteScope, 32, 32, {{0, 32}}}};
  Copy ps(config, AssignEvent{Generation(5), false, {}});
  const float scale = ps.core.state().loss_scale.scale;
  for (uint32_t r = 0; r < 2; ++r) {
    std::vector<float> gradient(32, r == 0 ? 1.0f : std::numeric_limits<float>::infinity());
    if (r == 1) std::fill(gradient.begin() + 16, gradient.end(), 2.0f);
    Buffer payload = Buffer::Allocate(BytesOf(GetParam(), 32));
    FromFloat(gradient, GetParam(), {payload.mutable_data(), payload.size()});
    Frame push = PushFrame(config, r, 1, 1, std::move(payload));
    push.dtype = GetParam();
    push.loss_scale = scale;
    ps.Run(FrameEvent{1, std::move(push)});
  }
  ASSERT_EQ(ps.core.version(), 1u);
  EXPECT_TRUE(SameBits(Dense(ps.core.state()).values(), Dense(PartitionState::Initial(config)).values()));
  EXPECT_EQ(ps.core.state().loss_scale.scale, scale / 2);
}

// A peer may pack blocks differently: -128 is a mantissa of OCP's MXINT8, and exponents begin at 0. Log and backups
// must still compute the primary's bits from it.
TEST(WireTypesOfPeersTest, BlocksThatAreNotAsWePackThemHaveTheSameBitsInTheLog) {
  struct Foreign {
    v1::DataType type;
    uint8_t mantissas, exponent;
  };
  for (const Foreign& f : {Foreign{v1::INT8, 0x80, 127},
                           {v1::INT8, 5, 3},
                           {v1::INT8, 0x80, 254},
                           {v1::INT4, 0x88, 127},
                           {v1::INT4, 0x11, 1},
                           {v1::INT4, 0x88, 254},
                           {v1::INT2, 0xaa, 127},
                           {v1::INT2, 0x55, 0},
                           {v1::INT2, 0x55, 254}}) {
    PartitionConfig config = Config(v1::LOGGED);
    Dense(config).wire = f.type;
    Copy ps(config, AssignEvent{Generation(5), false, {}});
    Buffer payload = Buffer::Zeros(BytesOf(f.type, 32));
    const size_t mantissas = payload.size() - 2;
    for (size_t i = 0; i < mantissas; ++i)
      payload.mutable_data()[i] = i % 2 == 0 ? f.mantissas : static_cast<uint8_t>(127 - i);
    payload.mutable_data()[mantissas] = payload.mutable_data()[mantissas + 1] = f.exponent;
    ASSERT_FALSE(IsRounded({f.type}, {payload.data(), payload.size()}, 32));
    Frame push = PushFrame(config, 0, 1, 1, std::move(payload), 1);
    push.dtype = f.type;
    push.generation = Generation(5);
    ps.Run(FrameEvent{1, std::move(push)});
    ASSERT_EQ(ps.core.version(), 1u);
    const PartitionState recovered = ps.persistence.Recover(ps.core.config()).value();
    EXPECT_TRUE(SameBits(Dense(recovered).values(), Dense(ps.core.state()).values()))
        << v1::DataType_Name(f.type) << " " << int{f.mantissas} << " " << int{f.exponent};
  }
}

// A dense layer and the statistics of a normalization whose pictures are not scaled, in a batch of 1800.
struct LargeSums {
  explicit LargeSums(v1::DataType wire) {
    spec.set_batch_size(1800);
    spec.set_replicas(1);
    spec.set_wire_dtype(wire);
    spec.mutable_optimizer()->mutable_sgd();
    spec.mutable_model()->add_layers()->mutable_input()->add_shape(16);
    spec.mutable_model()->add_layers()->mutable_batch_normalization()->set_momentum(0.9f);
    graph = std::make_shared<const Graph>(Graph::Build(spec.model()).value());
    v1::PartitionRange range;
    range.set_end(static_cast<uint64_t>(graph->space_size()));
    config = MakePartitionConfig(spec, graph, range, JobId(1), Generation(5)).value();
  }
  const Variable& Of(VariableKind kind) const {
    return *std::find_if(graph->variables().rbegin(), graph->variables().rend(),
                         [kind](const Variable& v) { return v.kind == kind; });
  }
  // The sum of an update as a worker sends it; each number of a variable is `mean` of its place times the examples.
  Frame PushOf(uint64_t sequence, const std::function<float(const Variable&, int64_t)>& mean) const {
    std::vector<float> sum(static_cast<size_t>(config.size()));
    for (const Variable& v : graph->variables()) {
      for (int64_t i = 0; i < v.size; ++i) sum[static_cast<size_t>(v.offset + i)] = 1800 * mean(v, i);
    }
    Buffer payload = Buffer::Allocate(KindOf(config).GradientBytes(config, Dense(config).wire));
    PackRounded(KindOf(config).RoundingOf(config, sequence), {0, 1}, sum, {payload.mutable_data(), payload.size()});
    Frame f = PushFrame(config, 0, 1, sequence, std::move(payload), 1800);
    f.dtype = Dense(config).wire;
    f.generation = Generation(5);
    return f;
  }
  v1::JobSpec spec;
  std::shared_ptr<const Graph> graph;
  PartitionConfig config;
};

// 1800 examples with gradients of 100 add up to more than FLOAT16 can hold, and a single variance may exceed it.
TEST_P(WireTypesTest, SumsOverABatchAreFinite) {
  const LargeSums job(GetParam());
  Copy ps(job.config, AssignEvent{Generation(5), false, {}});
  const Variable &weights = job.Of(VariableKind::kTrainable), &variance = job.Of(VariableKind::kMovingAverage);
  const std::vector<float> before(Dense(ps.core.state()).values().floats().begin(),
                                  Dense(ps.core.state()).values().floats().end());
  Frame push =
      job.PushOf(1, [](const Variable& v, int64_t) { return v.kind == VariableKind::kMovingAverage ? 3e5f : 100; });
  push.learning_rate = 0.01f;
  ps.Run(FrameEvent{1, std::move(push)});
  ASSERT_EQ(ps.core.version(), 1u);
  const auto after = Dense(ps.core.state()).values().floats();
  // A sum is 180000: 5.49 steps of 2^15 in INT4, 0.69 steps of 2^18 in INT2. It becomes one of the two neighbours.
  const double step = GetParam() == v1::INT4 ? 0x1p15 : GetParam() == v1::INT2 ? 0x1p18 : 0;
  std::set<int> steps;
  for (int64_t i = 0; i < weights.size; ++i) {
    const double moved = before[weights.offset + i] - after[weights.offset + i];
    if (step == 0) {
      EXPECT_NEAR(moved, 1, 0.02);
    } else {
      const double taken = moved * 1800 / 0.01 / step;
      EXPECT_NEAR(taken, std::round(taken), 0.001);
      steps.insert(static_cast<int>(std::round(taken)));
    }
  }
  const std::set<int> neighbours = GetParam() == v1::INT4 ? std::set<int>{5, 6} : std::set<int>{0, 1};
  if (step != 0) {
    EXPECT_EQ(steps, neighbours);
  }
  for (int64_t i = 0; i < variance.size; ++i) EXPECT_NEAR(after[variance.offset + i], 0.9f + 3e4f, 100);
  const PartitionState recovered = ps.persistence.Recover(ps.core.config()).value();
  EXPECT_TRUE(SameBits(Dense(recovered).values(), Dense(ps.core.state()).values()));
}

// A channel of variance 1e-3 beside one of 1.
TEST_P(WireTypesTest, AStatisticBesideALargerOneIsNotNoise) {
  const LargeSums job(GetParam());
  Copy ps(job.config, AssignEvent{Generation(5), false, {}});
  const Variable& variance = job.Of(VariableKind::kMovingAverage);
  for (uint64_t sequence = 1; sequence <= 150; ++sequence) {
    ps.Run(FrameEvent{1, job.PushOf(sequence, [](const Variable&, int64_t i) { return i == 3 ? 1 : 1e-3f; })});
    ASSERT_EQ(ps.core.version(), sequence);
    if (sequence < 100) continue;
    const auto after = Dense(ps.core.state()).values().floats();
    for (int64_t i = 0; i < variance.size; ++i) {
      const float expected = i == 3 ? 1 : 1e-3f;
      EXPECT_NEAR(after[variance.offset + i], expected, 0.05f * expected) << sequence << " " << i;
    }
  }
}

// Values in 8 bits: to nearest, averages in BFLOAT16, whatever the type of gradients; the ps keeps the exact ones.
TEST_P(WireTypesTest, ValuesTravelInEightBits) {
  const LargeSums job(GetParam());
  Copy ps(job.config, AssignEvent{Generation(5), false, {}});
  const GradientRounding rounding = ValuesRounding(v1::INT8, 0, Dense(job.config).layout);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    const std::vector<float> previous(Dense(ps.core.state()).values().floats().begin(),
                                      Dense(ps.core.state()).values().floats().end());
    ps.Run(FrameEvent{1, job.PushOf(sequence, [](const Variable&, int64_t i) { return i == 3 ? 0.1f : 1e-3f; })});
    ASSERT_EQ(ps.core.version(), sequence);
    const absl::Span<const float> exact = Dense(ps.core.state()).values().floats();
    for (const bool now : {true, false, true}) {
      Frame pull = PullFrame(job.config, sequence);
      pull.reply_dtype = v1::INT8;
      pull.want_version = now ? sequence : sequence - 1;
      const PartitionEffects e = ps.Run(FrameEvent{1, pull});
      ASSERT_EQ(e.replies.size(), 1u);
      const Frame& reply = e.replies[0].frame;
      ASSERT_EQ(reply.dtype, v1::INT8);
      ASSERT_EQ(reply.payload.size(), PackedBytes(rounding, exact.size()));
      std::vector<float> got(exact.size()), expected = now ? std::vector<float>(exact.begin(), exact.end()) : previous;
      UnpackRounded(rounding, {reply.payload.data(), reply.payload.size()}, absl::MakeSpan(got));
      RoundNearest(rounding, absl::MakeSpan(expected));
      EXPECT_EQ(got, expected) << sequence << " " << now;
      for (size_t i = 0; i < got.size(); i += kIntBlock) {
        float largest = 0, off = 0;
        for (size_t j = i; j < i + kIntBlock; ++j) {
          largest = std::max(largest, std::fabs(now ? exact[j] : previous[j]));
          off = std::max(off, std::fabs(got[j] - (now ? exact[j] : previous[j])));
        }
        EXPECT_LE(off, largest / 126) << "more than half a step";
      }
    }
  }
}

TEST(WireTypesOfValuesTest, ValuesDoNotTravelInFewerBits) {
  const PartitionConfig config = Config(v1::LOGGED);
  Copy ps(config, AssignEvent{Generation(5), false, {}});
  for (const v1::DataType type : {v1::INT4, v1::INT2}) {
    Frame pull = PullFrame(config, 1);
    pull.reply_dtype = type;
    const PartitionEffects e = ps.Run(FrameEvent{1, pull});
    ASSERT_EQ(e.replies.size(), 1u);
    EXPECT_EQ(std::string(e.replies[0].frame.status.message()),
              absl::StrCat("reply_dtype: ", static_cast<int>(type),
                           " is not a type of values; use FLOAT32, BFLOAT16, FLOAT16 or INT8"));
  }
}

}  // namespace
}  // namespace cairn
