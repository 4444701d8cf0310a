// A ReplicaCore by hand: two partitions of 16 numbers, what it sends and wants computed caught one by one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/model/clip_norm.h"
#include "worker/core/replica_core.h"

namespace cairn {

inline constexpr int kPartitions = 2;
inline constexpr uint64_t kNumbers = 16;  // of a partition

inline v1::AssignReplicas Assignment(v1::Strategy strategy, int replicas, const std::vector<int>& own,
                                     const std::string& address = "ps-0:7071") {
  v1::AssignReplicas message;
  message.set_job_id(7);
  message.set_generation(1);
  message.set_assignment(1);
  v1::JobSpec& spec = *message.mutable_spec();
  spec.set_strategy(strategy);
  spec.set_replicas(replicas);
  spec.set_batch_size(8);
  spec.set_epochs(1);
  spec.mutable_optimizer()->set_learning_rate(0.1f);
  spec.mutable_optimizer()->mutable_sgd();
  message.mutable_data()->set_train_examples(32);
  message.set_steps_per_epoch(4);
  message.set_total_steps(4);
  for (int r : own) message.add_replicas(r);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    v1::Route& route = *message.add_routes();
    route.mutable_range()->set_partition(p);
    route.mutable_range()->set_begin(p * kNumbers);
    route.mutable_range()->set_end((p + 1) * kNumbers);
    route.set_address(address);
  }
  return message;
}

// Of a node whose backend adds up the gradients of its replicas.
inline ReplicaCoreOptions Joining() {
  ReplicaCoreOptions options;
  options.joins = true;
  return options;
}

using Places = std::vector<std::pair<uint64_t, uint32_t>>;  // work, partition

class StrategiesTest : public ::testing::Test {
 protected:
  explicit StrategiesTest(const ReplicaCoreOptions& options = {}) : core_(options) {}
  void Feed(replica::Event event) {
    for (replica::Effect& effect : core_.Step(std::move(event), now_)) {
      if (auto* send = std::get_if<replica::Send>(&effect)) {
        (send->frame.kind == v1::ExchangeFrame::PUSH   ? pushes
         : send->frame.kind == v1::ExchangeFrame::CLIP ? clips
                                                       : pulls)
            .push_back(std::move(*send));
      } else if (auto* compute = std::get_if<replica::Compute>(&effect)) {
        computes.push_back(std::move(*compute));
      } else if (auto* evaluate = std::get_if<replica::Evaluate>(&effect)) {
        evaluations.push_back(std::move(*evaluate));
      } else if (auto* here_effect = std::get_if<replica::WeightsHere>(&effect)) {
        here.emplace_back(here_effect->work, here_effect->partition);
      } else if (auto* stop = std::get_if<replica::StopWork>(&effect)) {
        stopped.push_back(stop->work);
      } else if (auto* report = std::get_if<replica::Report>(&effect)) {
        reports.push_back(std::move(report->report));
      } else if (auto* fail = std::get_if<replica::Fail>(&effect)) {
        failure = fail->message;
      }
    }
  }
  // The answer to a pull or a push: values of this version, each the partition's number + version.
  void Answer(const replica::Send& send, uint64_t version, uint64_t sequence = 0, std::string scalars = "") {
    Frame frame;
    frame.scalars = std::move(scalars);
    frame.kind = v1::ExchangeFrame::VALUES;
    frame.partition = send.frame.partition;
    frame.version = version;
    frame.sequence = sequence;
    frame.loss_scale = loss_scale;
    if (send.frame.reply_dtype == v1::DATA_TYPE_UNSPECIFIED) {  // of a push that wants no values
      Feed(replica::Reply{send.request, std::move(frame)});
      return;
    }
    frame.dtype = v1::FLOAT32;
    const std::vector<float> values(kNumbers,
                                    static_cast<float>(send.frame.partition.value) + static_cast<float>(version));
    frame.payload = Buffer::CopyOf(values.data(), values.size() * sizeof(float));
    Feed(replica::Reply{send.request, std::move(frame)});
  }
  void AnswerPulls(uint64_t version, uint64_t sequence = 0) {
    for (const replica::Send& pull : std::exchange(pulls, {})) Answer(pull, version, sequence);
  }
  // The whole gradient, `value` in each place.
  void Finish(replica::Compute compute, float value) {
    for (float& g : compute.gradient.mutable_floats()) g = value;
    const uint64_t work = compute.work;
    compute.values = compute.gradient = {};
    Feed(replica::GradientReady{work, 0, kPartitions});
    BatchSums sums;
    sums.examples = 2;
    sums.loss = 1;
    Feed(replica::Computed{work, sums});
  }
  void EndEvaluation(const replica::Evaluate& evaluate) {
    BatchSums sums;
    sums.examples = static_cast<uint64_t>(evaluate.places.size());
    Feed(replica::Evaluated{evaluate.work, sums});
  }
  // Of so many examples the replica was told to have validated, after so many steps.
  uint64_t Validated(int replica, int64_t step) const {
    uint64_t examples = 0;
    for (const v1::ReplicaReport& report : reports) {
      if (report.replica() == replica && report.has_validation() && report.validation_step() == step) {
        examples += report.validation().examples();
      }
    }
    return examples;
  }
  // The answer to a push: what the partition has in the one norm over all.
  void AnswerNorms(const replica::Send& send, float gradient) {
    Frame frame;
    frame.kind = v1::ExchangeFrame::NORMS;
    frame.partition = send.frame.partition;
    frame.sequence = send.frame.sequence;
    frame.scalars = Norms(gradient);
    Feed(replica::Reply{send.request, std::move(frame)});
  }
  static std::string Norms(float gradient) {
    const std::vector<float> numbers(kNumbers, gradient);
    NormRecord record{0, kNumbers, kPartitions * kNumbers, {}};
    record.squares.Add(numbers, 1);
    return EncodeNorms({&record, 1});
  }
  std::vector<replica::Compute> TakeComputes() { return std::exchange(computes, {}); }
  // By partition: that of the first one waits for the figures, and comes last.
  std::vector<replica::Send> TakePushes() {
    std::vector<replica::Send> taken = std::exchange(pushes, {});
    std::stable_sort(taken.begin(), taken.end(),
                     [](const auto& a, const auto& b) { return a.frame.partition.value < b.frame.partition.value; });
    return taken;
  }

  ReplicaCore core_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<replica::Send> pushes, pulls, clips;
  std::vector<replica::Compute> computes;
  std::vector<replica::Evaluate> evaluations;
  Places here;
  std::vector<uint64_t> stopped;
  std::vector<v1::ReplicaReport> reports;
  std::string failure;
  float loss_scale = 0;  // of the answers
};

}  // namespace cairn
