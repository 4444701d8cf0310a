// Goal: sums of gradients on devices (worker/backend/cudnn/join.h) have the bits of the sum on the host, SumSubtree and
// FromFloat, for any number of replicas, any of them without examples, on any devices, in whatever order they come and
// at once, with ranges of any cut, loss scales and frozen layers; values that cross as numbers of 16 bits give the same
// gradient. On the machine that computes on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "common/model/gradient_layout.h"
#include "common/tensor/dtype.h"
#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/join.h"
#include "worker/backend/cudnn/program.h"

namespace cairn {
namespace {

using cudnn::DeviceJoin;
using cudnn::HostMachine;

// A batch normalization has moving averages, which no loss scale applies to; a layer is frozen.
const LayerCase kCase = {
    "joined",
    "layers { input { shape: [6, 6, 2] } } layers { conv2d { filters: 5 kernel_size: 3 } } layers { "
    "batch_normalization {} } "
    "layers { activation { activation: RELU } } layers { flatten {} } layers { trainable: false dense { units: 7 } } "
    "layers { dense { units: 9 activation: TANH } } layers { dense { units: 4 activation: SOFTMAX } }"};

struct Replica {
  std::unique_ptr<Program> program;
  HostMachine* machine = nullptr;  // the program's
  Batch batch;
  StepInfo info;
};

// Launches on a lost device fail with a code of their library; a wait for it reports that it is lost.
class FailingMachine : public HostMachine {
 public:
  using HostMachine::HostMachine;
  absl::Status Multiply(const cudnn::Product& p, const void* a, const void* b, const void* bias, void* c,
                        void* workspace) override {
    if (multiply_fails) return absl::InternalError("cublasLtMatmul: 14");
    return HostMachine::Multiply(p, a, b, bias, c, workspace);
  }
  absl::Status CopyOutAside(void* pinned, const void* from, int64_t bytes) override {
    if (aside_fails) return absl::InternalError("cudaMemcpyAsync: 719");
    return HostMachine::CopyOutAside(pinned, from, bytes);
  }
  absl::Status WaitForAll(absl::Duration patience) override {
    const absl::Status done = HostMachine::WaitForAll(patience);
    return lost ? absl::UnavailableError("the device is lost") : done;
  }
  bool multiply_fails = false, aside_fails = false, lost = false;
};

class CudnnJoinTest : public testing::Test {
 protected:
  // Replica i on device i % devices, with examples_[i] examples.
  void Make(const std::vector<int64_t>& examples, int devices, HostMachine::Copies copies,
            v1::DataType compute = v1::FLOAT32, float loss_scale = 1) {
    beside_ = std::make_unique<BesideReference>(kCase, 4, compute);
    graph_ = beside_->graph();
    values_ = beside_->values();
    v1::JobSpec spec;
    spec.set_batch_size(20);
    layout_ = GradientLayoutOf(*graph_, spec);
    ASSERT_FALSE(layout_.averages.empty());
    ASSERT_GT(layout_.shift, 0);
    const auto precision = cudnn::PrecisionOf(beside_->options());
    ASSERT_TRUE(precision.ok());
    replicas_.clear();
    for (size_t i = 0; i < examples.size(); ++i) {
      Replica& replica = replicas_.emplace_back();
      auto machine = std::make_unique<HostMachine>(*precision, copies, nullptr, nullptr, static_cast<int>(i) % devices);
      replica.machine = machine.get();
      auto program = cudnn::MakeProgram(graph_, beside_->options(), *precision, std::move(machine));
      ASSERT_TRUE(program.ok()) << program.status();
      replica.program = *std::move(program);
      if (examples[i] > 0)
        replica.batch = CaseBatch(*graph_, beside_->options().loss, examples[i], static_cast<uint32_t>(i) + 3);
      replica.info = {.seed = 11, .step = 5, .replica = static_cast<uint32_t>(i), .loss_scale = loss_scale};
    }
  }

  // What the host computes from the replicas' own gradients.
  std::vector<uint8_t> Expected(v1::DataType type) {
    const auto space = static_cast<size_t>(graph_->space_size());
    std::vector<std::vector<float>> gradients;
    std::vector<GradientSum> leaves;
    for (Replica& replica : replicas_) {
      std::vector<float>& gradient = gradients.emplace_back();
      if (replica.batch.examples == 0) continue;
      gradient.assign(space, std::numeric_limits<float>::quiet_NaN());
      EXPECT_TRUE(
          replica.program->TrainStep(replica.batch, replica.info, values_, absl::MakeSpan(gradient), nullptr).ok());
    }
    for (size_t i = 0; i < replicas_.size(); ++i)
      leaves.push_back({absl::MakeSpan(gradients[i]), static_cast<uint64_t>(replicas_[i].batch.examples)});
    std::vector<uint8_t> out(space * SizeOf(type));
    const GradientRounding rounding = {type, 0, 0, 0, &layout_};
    const TreeNode node = {0, static_cast<uint32_t>(leaves.size())};
    PackRounded(rounding, node, SumSubtree(node, leaves, rounding).gradient, absl::MakeSpan(out));
    return out;
  }

  JoinOptions Options(v1::DataType type, int ranges) {
    JoinOptions options;
    options.node = {0, static_cast<uint32_t>(replicas_.size())};
    for (const Replica& replica : replicas_) options.leaves.push_back(replica.batch.examples > 0);
    const int64_t blocks = graph_->space_size() / 16;
    for (int64_t r = 1; r <= ranges; ++r) options.ends.push_back(blocks * r / ranges * 16);
    options.type = type;
    options.layout = layout_;
    options.into = Buffer::Zeros(static_cast<size_t>(graph_->space_size()) * SizeOf(type));
    told_ = std::vector<std::atomic<int>>(static_cast<size_t>(ranges));
    options.ready = [this](uint32_t range) { ++told_[range]; };
    return options;
  }

  std::shared_ptr<DeviceJoin> Join(JoinOptions options) {
    auto join = DeviceJoin::Make(graph_, std::move(options), memory_);
    EXPECT_TRUE(join.ok()) << join.status();
    return join.ok() ? *join : nullptr;
  }

  void Run(uint32_t leaf, const std::shared_ptr<DeviceJoin>& join) {
    Replica& replica = replicas_[leaf];
    const auto sums = replica.program->TrainJoined(replica.batch, replica.info, values_, join, leaf, nullptr);
    ASSERT_TRUE(sums.ok()) << sums.status();
    EXPECT_EQ(sums->examples, static_cast<uint64_t>(replica.batch.examples));
    EXPECT_FALSE(replica.machine->aside_under_way()) << "what it left is not complete";
  }

  void ExpectSum(const JoinOptions& options, const std::vector<uint8_t>& expected) {
    ASSERT_EQ(options.into.size(), expected.size());
    EXPECT_EQ(std::memcmp(options.into.data(), expected.data(), expected.size()), 0);
    for (const std::atomic<int>& told : told_) EXPECT_EQ(told, 1);
  }

  std::unique_ptr<BesideReference> beside_;
  std::shared_ptr<const Graph> graph_;
  std::vector<float> values_;
  GradientLayout layout_;
  std::vector<Replica> replicas_;
  std::vector<std::atomic<int>> told_;
  const std::shared_ptr<cudnn::JoinMemory> memory_ = std::make_shared<cudnn::JoinMemory>();
};

TEST_F(CudnnJoinTest, TheBitsOfTheHostInAnyOrderOnAnyDevices) {
  std::mt19937 random(5);
  for (const std::vector<int64_t>& examples : {std::vector<int64_t>{4},
                                               {4, 4},
                                               {4, 4, 3},
                                               {0, 4, 2},
                                               {4, 4, 4, 4},
                                               {4, 3, 1, 4, 2},
                                               {4, 0, 0, 2, 1},
                                               {3, 4, 0, 1, 4, 4, 2}}) {
    for (const int devices : {1, 2, 4}) {
      for (const v1::DataType type : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
        SCOPED_TRACE(testing::Message() << examples.size() << " replicas on " << devices << " devices, "
                                        << v1::DataType_Name(type));
        Make(examples, devices, random() % 2 == 0 ? HostMachine::Copies::kEarly : HostMachine::Copies::kLate);
        if (HasFatalFailure()) return;
        const std::vector<uint8_t> expected = Expected(type);
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < examples.size(); ++i) {
          if (examples[i] > 0) order.push_back(i);
        }
        for (int step = 0; step < 3; ++step) {  // recorded from the second on
          std::shuffle(order.begin(), order.end(), random);
          const JoinOptions options = Options(type, step == 1 ? 1 : 5);
          const auto join = Join(options);
          ASSERT_NE(join, nullptr);
          for (uint32_t leaf : order) Run(leaf, join);
          ExpectSum(options, expected);
        }
        int copies = 0;
        for (const Replica& replica : replicas_) copies += replica.machine->peer_copies();
        if (devices == 1 || order.size() == 1) {
          EXPECT_EQ(copies, 0) << "all of one device";
        } else {
          EXPECT_GT(copies, 0);
        }
      }
    }
  }
}

TEST_F(CudnnJoinTest, TheBitsOfTheHostWhenAllComeAtOnce) {
  Make({4, 4, 3, 4, 2}, 2, HostMachine::Copies::kLate);
  if (HasFatalFailure()) return;
  const std::vector<uint8_t> expected = Expected(v1::BFLOAT16);
  for (int step = 0; step < 20; ++step) {
    const JoinOptions options = Options(v1::BFLOAT16, 7);
    const auto join = Join(options);
    ASSERT_NE(join, nullptr);
    std::vector<std::thread> threads;
    for (uint32_t leaf = 0; leaf < replicas_.size(); ++leaf) threads.emplace_back([&, leaf] { Run(leaf, join); });
    for (std::thread& thread : threads) thread.join();
    ExpectSum(options, expected);
  }
}

TEST_F(CudnnJoinTest, ALossScaleIsTakenOutOfVariablesBeforeTheyAreAdded) {
  for (const std::vector<int64_t>& examples : {std::vector<int64_t>{4}, {4, 3}, {2, 4, 1}}) {
    for (const v1::DataType type : {v1::FLOAT32, v1::FLOAT16}) {
      Make(examples, 2, HostMachine::Copies::kLate, v1::FLOAT16, 64);
      if (HasFatalFailure()) return;
      const std::vector<uint8_t> expected = Expected(type);
      const JoinOptions options = Options(type, 6);
      const auto join = Join(options);
      ASSERT_NE(join, nullptr);
      for (uint32_t leaf = 0; leaf < examples.size(); ++leaf) Run(leaf, join);
      ExpectSum(options, expected);
    }
  }
}

// A job continues without a worker whose device is lost, and fails if something else went wrong.
TEST_F(CudnnJoinTest, AStepThatFailsOnALostDeviceSaysSo) {
  Make({4}, 1, HostMachine::Copies::kEarly);
  if (HasFatalFailure()) return;
  const auto precision = cudnn::PrecisionOf(beside_->options());
  auto made = std::make_unique<FailingMachine>(*precision);
  FailingMachine& machine = *made;
  const auto program = cudnn::MakeProgram(graph_, beside_->options(), *precision, std::move(made));
  ASSERT_TRUE(program.ok()) << program.status();
  const Replica& replica = replicas_[0];
  std::vector<float> gradient(static_cast<size_t>(graph_->space_size()));
  const auto alone = [&] {
    return (*program)->TrainStep(replica.batch, replica.info, values_, absl::MakeSpan(gradient), nullptr).status();
  };
  const auto joined = [&] {
    return (*program)
        ->TrainJoined(replica.batch, replica.info, values_, Join(Options(v1::FLOAT32, 3)), 0, nullptr)
        .status();
  };
  for (const bool warm : {false, true}) {
    for (const bool lost : {false, true}) {
      SCOPED_TRACE(testing::Message() << "warm " << warm << ", lost " << lost);
      const auto code = lost ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal;
      machine.Share(std::make_shared<cudnn::DeviceHealth>("GPU 0"));  // well again: what is lost stays so
      machine.lost = lost;
      machine.multiply_fails = true;
      EXPECT_EQ(alone().code(), code);
      EXPECT_EQ((*program)->Evaluate(replica.batch, values_).status().code(), code);
      EXPECT_EQ(joined().code(), code);
      machine.multiply_fails = false;
      machine.aside_fails = true;
      EXPECT_EQ(joined().code(), code) << "as it was added";
      machine.aside_fails = machine.lost = false;
    }
    EXPECT_TRUE(alone().ok());
    EXPECT_TRUE(joined().ok());
  }
}

// Pieces (JobSpec.accumulate_steps) are added in order before replicas are; only the last piece contributes to the sum.
TEST_F(CudnnJoinTest, PiecesAreAddedUpAsOnTheHost) {
  for (const v1::DataType compute : {v1::FLOAT32, v1::FLOAT16}) {
    for (const std::vector<int64_t>& examples : {std::vector<int64_t>{4}, {4, 3}, {2, 4, 1}}) {
      for (const int pieces : {2, 3}) {
        SCOPED_TRACE(testing::Message() << examples.size() << " replicas of " << pieces << " pieces, "
                                        << v1::DataType_Name(compute));
        Make(examples, 2, HostMachine::Copies::kLate, compute, compute == v1::FLOAT16 ? 64 : 1);
        if (HasFatalFailure()) return;
        const auto batch = [&](size_t replica, int piece) {
          return CaseBatch(*graph_, beside_->options().loss, examples[replica],
                           static_cast<uint32_t>(10 * replica) + static_cast<uint32_t>(piece));
        };
        const auto space = static_cast<size_t>(graph_->space_size());
        std::vector<std::vector<float>> gradients(examples.size(), std::vector<float>(space));
        std::vector<GradientSum> leaves;
        for (size_t r = 0; r < examples.size(); ++r) {
          std::vector<float> own(space);
          for (int piece = 0; piece < pieces; ++piece) {
            StepInfo info = replicas_[r].info;
            info.step += static_cast<uint64_t>(piece);
            ASSERT_TRUE(replicas_[r]
                            .program
                            ->TrainStep(batch(r, piece), info, values_, absl::MakeSpan(piece == 0 ? gradients[r] : own),
                                        nullptr)
                            .ok());
            if (piece > 0) SumInto(absl::MakeSpan(gradients[r]), own);
          }
          leaves.push_back({absl::MakeSpan(gradients[r]), 1});
        }
        std::vector<uint8_t> expected(space * 2);
        FromFloat(SumSubtree({0, static_cast<uint32_t>(leaves.size())}, leaves, {v1::BFLOAT16}).gradient, v1::BFLOAT16,
                  absl::MakeSpan(expected));
        for (int step = 0; step < 3; ++step) {  // recorded from the second on; each begins with nothing in the sum
          const JoinOptions options = Options(v1::BFLOAT16, 5);
          const auto join = Join(options);
          ASSERT_NE(join, nullptr);
          for (int piece = 0; piece < pieces; ++piece) {
            for (size_t r = 0; r < examples.size(); ++r) {
              for (const std::atomic<int>& told : told_) ASSERT_EQ(told, 0);
              StepInfo info = replicas_[r].info;
              info.step += static_cast<uint64_t>(piece);
              info.first_piece = piece == 0;
              info.last_piece = piece == pieces - 1;
              ASSERT_TRUE(
                  replicas_[r]
                      .program->TrainJoined(batch(r, piece), info, values_, join, static_cast<uint32_t>(r), nullptr)
                      .ok());
              EXPECT_FALSE(replicas_[r].machine->aside_under_way())
                  << "the next piece would write over what is being added";
            }
          }
          ExpectSum(options, expected);
        }
      }
    }
  }
}

// The scale is too large: the sum is not finite, as it is on the host.
TEST_F(CudnnJoinTest, AnOverflowIsSeenInTheSum) {
  Make({4, 3}, 1, HostMachine::Copies::kEarly, v1::FLOAT16, 0x1p100f);
  if (HasFatalFailure()) return;
  const JoinOptions options = Options(v1::FLOAT32, 3);
  const auto join = Join(options);
  ASSERT_NE(join, nullptr);
  for (uint32_t leaf = 0; leaf < 2; ++leaf) Run(leaf, join);
  EXPECT_FALSE(std::all_of(options.into.floats().begin(), options.into.floats().end(),
                           [](float f) { return std::isfinite(f); }));
}

// A sum whose replicas do not all come, because they moved away: its contents are dropped, and the next sum is not
// affected.
TEST_F(CudnnJoinTest, ASumThatIsNeverMadeDisturbsNoOther) {
  Make({4, 4, 4}, 2, HostMachine::Copies::kLate);
  if (HasFatalFailure()) return;
  const std::vector<uint8_t> expected = Expected(v1::FLOAT32);
  auto left = Join(Options(v1::FLOAT32, 4));
  ASSERT_NE(left, nullptr);
  Run(1, left);
  Run(2, left);
  for (const std::atomic<int>& told : told_) EXPECT_EQ(told, 0);
  const JoinOptions options = Options(v1::FLOAT32, 4);
  const auto join = Join(options);
  Run(2, join);
  left.reset();
  Run(0, join);
  Run(1, join);
  ExpectSum(options, expected);
}

TEST_F(CudnnJoinTest, ValuesOfSixteenBitsGiveTheSameGradient) {
  Make({4}, 1, HostMachine::Copies::kLate);
  if (HasFatalFailure()) return;
  for (const v1::DataType type : {v1::BFLOAT16, v1::FLOAT16}) {
    std::vector<uint8_t> bits(values_.size() * 2);
    FromFloat(values_, type, absl::MakeSpan(bits));
    ToFloat(bits, type, absl::MakeSpan(values_));
    const std::vector<uint8_t> expected = Expected(v1::FLOAT32);
    replicas_[0].info.values = type;
    for (int step = 0; step < 3; ++step) EXPECT_EQ(Expected(v1::FLOAT32), expected);
    replicas_[0].info.values = v1::FLOAT32;
    EXPECT_EQ(Expected(v1::FLOAT32), expected);
  }
}

TEST_F(CudnnJoinTest, OptionsThatDoNotFitAreRefused) {
  Make({4, 0}, 1, HostMachine::Copies::kEarly);
  if (HasFatalFailure()) return;
  const auto refused = [&](const std::function<void(JoinOptions&)>& change) {
    JoinOptions options = Options(v1::FLOAT32, 3);
    change(options);
    return DeviceJoin::Make(graph_, options, memory_).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](JoinOptions&) {}));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.leaves.pop_back(); }));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.leaves = {false, false}; }));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.ends.pop_back(); }));
  EXPECT_TRUE(refused([](JoinOptions& o) { std::swap(o.ends[0], o.ends[1]); }));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.ends.clear(); }));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.ends[0] += 4; })) << "kernels read whole 64 bytes";
  EXPECT_TRUE(refused([](JoinOptions& o) { o.type = v1::DATA_TYPE_UNSPECIFIED; }));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.layout.shift = 61; }));
  EXPECT_TRUE(refused([](JoinOptions& o) { o.into = Buffer::Zeros(16); }));
  const auto join = Join(Options(v1::FLOAT32, 3));
  ASSERT_NE(join, nullptr);
  const auto trained =
      replicas_[0].program->TrainJoined(replicas_[0].batch, replicas_[0].info, values_, join, 1, nullptr);
  EXPECT_EQ(trained.status().code(), absl::StatusCode::kInvalidArgument) << "that replica has no examples";
}

}  // namespace
}  // namespace cairn
