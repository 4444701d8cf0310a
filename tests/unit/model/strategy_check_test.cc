// Goal: combinations of strategy, local_sync, clipping, validation and checkpoints that do not work are refused by a
// sentence that names the field and says what to do; those that work are accepted.
#include "common/model/strategy_check.h"

#include <gtest/gtest.h>

#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

constexpr char kGood[] = R"(
  model { layers { input { shape: 4 } } layers { dense { units: 3 activation: SOFTMAX } } }
  data { path: "/data/iris.csv" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
)";

absl::Status Check(const std::string& change) {
  v1::JobSpec spec = FromText<v1::JobSpec>(kGood);
  spec.MergeFrom(FromText<v1::JobSpec>(change));
  if (!spec.has_optimizer() || spec.optimizer().kind_case() == v1::Optimizer::KIND_NOT_SET) {
    spec.mutable_optimizer()->mutable_sgd();
  }
  return CheckJob(spec).status();
}

TEST(StrategyCheck, Refused) {
  const struct {
    const char* change;
    const char* error;
  } cases[] = {
      {"strategy: CENTRAL_STORAGE replicas: 4 backup_replicas: 1",
       "backup_replicas: not with strategy CENTRAL_STORAGE, whose steps need values that the others would have left "
       "behind; leave it out, or use MULTI_WORKER_MIRRORED"},
      {"strategy: CENTRAL_STORAGE staleness_bound: 1",
       "staleness_bound: only for strategy PARAMETER_SERVER, not CENTRAL_STORAGE; leave it out or change the "
       "strategy"},
      {"local_sync: -1", "local_sync: -1 is not allowed; leave it out for 1, or give at least 1"},
      {"local_sync: 2",
       "local_sync: only for strategy PARAMETER_SERVER, not MULTI_WORKER_MIRRORED, whose replicas are all in step; "
       "leave "
       "it out"},
      {"strategy: CENTRAL_STORAGE local_sync: 2",
       "local_sync: only for strategy PARAMETER_SERVER, not CENTRAL_STORAGE, whose replicas are all in step; leave it "
       "out"},
      {"strategy: PARAMETER_SERVER staleness_bound: 0 local_sync: 2",
       "local_sync: with staleness_bound 0 all replicas are in step; leave it out, or the bound"},
      {"strategy: PARAMETER_SERVER local_sync: 2",
       "local_sync: 2 needs to know the number of replicas; set replicas to a multiple of it"},
      {"strategy: PARAMETER_SERVER local_sync: 3 replicas: 4",
       "local_sync: 3 does not divide the 4 replicas; use a divisor, or replicas: 6"},
      {"validation_freq_steps: -5", "validation_freq_steps: -5 is negative; use 1 or more, or leave it out"},
      {"validation_by: BY_EVALUATOR",
       "validation_by: BY_EVALUATOR evaluates checkpoints, but the job writes none; set checkpoints.dir"},
      {"validation_by: BY_EVALUATOR checkpoints { dir: \"/run\" } validation_freq_steps: 50",
       "validation_freq_steps: an evaluator evaluates every checkpoint; set checkpoints.every_steps: 50 instead, or "
       "validation_by: BY_REPLICAS"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Check(c.change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.change;
    EXPECT_EQ(status.message(), c.error) << c.change;
  }
}

TEST(StrategyCheck, Accepted) {
  for (const char* change : {
           "strategy: CENTRAL_STORAGE optimizer { adam {} clipvalue: 1 ema {} }",
           "strategy: CENTRAL_STORAGE optimizer { sgd {} global_clipnorm: 1 } accumulate_steps: 2",
           "strategy: CENTRAL_STORAGE wire_dtype: BFLOAT16 checkpoints { dir: \"/run\" }",
           "strategy: PARAMETER_SERVER local_sync: 2 replicas: 4 staleness_bound: 1",
           "local_sync: 1",
           "validation_freq_steps: 10",
           "validation_by: BY_EVALUATOR checkpoints { dir: \"/run\" every_steps: 5 }",
       }) {
    EXPECT_TRUE(Check(change).ok()) << change << ": " << Check(change);
  }
}

TEST(StrategyCheck, AgainstData) {
  v1::DataInfo data;
  data.set_path("/data");
  v1::JobSpec spec;
  EXPECT_TRUE(CheckStrategyAgainstData(spec, data).ok());
  spec.set_validation_freq_steps(5);
  EXPECT_EQ(CheckStrategyAgainstData(spec, data).message(),
            "validation_freq_steps: /data has no validation examples; set data.validation_split, or leave it out");
  spec.set_validation_by(v1::BY_EVALUATOR);
  EXPECT_EQ(CheckStrategyAgainstData(spec, data).message(),
            "validation_by: /data has no validation examples; set data.validation_split, or leave it out");
  data.set_validation_examples(1);
  EXPECT_TRUE(CheckStrategyAgainstData(spec, data).ok());
}

TEST(StrategyCheck, LocalSyncDefault) { EXPECT_EQ(LocalSyncOf(v1::JobSpec()), 1); }

}  // namespace
}  // namespace cairn
