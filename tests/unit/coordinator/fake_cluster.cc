#include "tests/unit/coordinator/fake_cluster.h"

#include <gtest/gtest.h>

#include <utility>

#include "coordinator/store/state_store.h"

namespace cairn {

FakeCluster::FakeCluster() {
  data.set_train_examples(40);
  data.set_validation_examples(8);
  data.set_test_examples(16);
  data.add_example_shape(8);
  data.set_classes(4);
  data.set_format(v1::Data::CSV);
  RestartCoordinator();
  crashed_ = false;
}

v1::JobSpec FakeCluster::Spec(int replicas) {
  v1::JobSpec spec;
  spec.set_name("test");
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(8);
  v1::Dense& hidden = *spec.mutable_model()->add_layers()->mutable_dense();
  hidden.set_units(16);
  hidden.set_activation(v1::RELU);
  v1::Dense& out = *spec.mutable_model()->add_layers()->mutable_dense();
  out.set_units(4);
  out.set_activation(v1::SOFTMAX);
  spec.mutable_data()->set_path("/data/test.csv");
  spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  spec.add_metrics()->set_kind(v1::Metric::ACCURACY);
  spec.mutable_optimizer()->mutable_sgd();
  spec.set_batch_size(8);
  spec.set_epochs(2);
  if (replicas > 0) spec.set_replicas(replicas);
  spec.set_partition_bytes(256);
  spec.set_backups(0);
  return spec;
}

// ---- users ----

ReplyToken FakeCluster::Submit(const v1::JobSpec& spec, const std::string& key, const Requester& who) {
  absl::StatusOr<CheckedJob> checked = CheckJob(spec);
  EXPECT_TRUE(checked.ok()) << checked.status();
  const ReplyToken token{++last_token_};
  Do(SubmitJob{token, std::make_shared<const CheckedJob>(*std::move(checked)), key, who});
  Settle();
  return token;
}

const Reply* FakeCluster::ReplyTo(ReplyToken token) const {
  auto it = replies_.find(token);
  return it == replies_.end() ? nullptr : &it->second;
}

uint64_t FakeCluster::SubmittedId(ReplyToken token) const {
  const Reply* reply = ReplyTo(token);
  if (reply == nullptr || !reply->status.ok()) return 0;
  return std::get<v1::SubmitResponse>(reply->body).job().job_id();
}

v1::JobStatus FakeCluster::Job(uint64_t id) const {
  absl::StatusOr<v1::JobStatus> status = core_->GetJob(JobId(id), absl::InfinitePast());
  return status.ok() ? *std::move(status) : v1::JobStatus();
}

bool FakeCluster::Logged(const std::string& part) const {
  for (const std::string& line : log_) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

// ---- the coordinator ----

void FakeCluster::Do(const Event& event) {
  std::vector<ReplyToken> taken;
  Effects effects = core_->Step(event, clock_.Now());
  if (observe) observe(event, effects);
  for (Effect& effect : effects) {
    if (effect_count_++ == crash_at_) {
      crashed_ = true;
      if (observe_end) observe_end(effect);
      return RestartCoordinator();
    }
    if (auto* store = std::get_if<Store>(&effect)) {
      if (store->value) {
        disk[store->key] = *store->value;
        bytes_stored += store->value->size();
      } else {
        disk.erase(store->key);
      }
    } else if (auto* send = std::get_if<SendCommand>(&effect)) {
      for (auto& [name, node] : nodes_) {
        if (node->session == send->session) node->inbox.push_back(std::move(send->message));
      }
    } else if (auto* close = std::get_if<CloseSession>(&effect)) {
      for (auto& [name, node] : nodes_) {
        if (node->session != close->session) continue;
        node->session = {};
        node->closed = close->reason;
      }
    } else if (auto* reply = std::get_if<Reply>(&effect)) {
      EXPECT_FALSE(replies_.contains(reply->token)) << "two replies to one call";
      replies_[reply->token] = std::move(*reply);
    } else if (auto* part = std::get_if<SendPrediction>(&effect)) {
      predictions[part->token].push_back(std::move(part->part));
      if (take_predictions) taken.push_back(part->token);
    } else if (auto* line = std::get_if<LogLine>(&effect)) {
      log_.push_back(LogText(*line));
      EXPECT_EQ(line->text.find("a change of its state"), std::string::npos) << line->text;
    }
  }
  for (ReplyToken token : taken) Do(PredictionTaken{token});
}

void FakeCluster::RestartCoordinator() {
  const absl::StatusOr<StoredState> state = ReadStored(disk);
  ASSERT_TRUE(state.ok()) << state.status();
  for (auto& [name, node] : nodes_) node->session = {};
  core_ = std::make_unique<ClusterCore>(options, ++incarnation_ * 1'000'000, *state, clock_.Now());
}

// ---- the loop ----

void FakeCluster::ReconnectAll() {
  for (auto& [name, node] : nodes_) {
    if (node->running && node->session.value == 0) Connect(*node);
  }
}

void FakeCluster::Settle() {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& [name, node] : nodes_) {
      moved = moved || !node->inbox.empty();
      Deliver(*node);
    }
  }
}

void FakeCluster::Pass(absl::Duration duration) {
  for (absl::Duration t; t < duration; t += absl::Milliseconds(100)) {
    clock_.Advance(absl::Milliseconds(100));
    if (absl::ToUnixMillis(clock_.Now()) % 500 == 0) {
      for (auto& [name, node] : nodes_) Beat(*node);
    }
    for (auto& [name, node] : nodes_) Replicate(*node);
    Do(Tick{});
    Settle();
  }
}

bool FakeCluster::RunToEnd(uint64_t job_id) {
  for (int round = 0; round < 2000; ++round) {
    ReconnectAll();
    Settle();
    const v1::JobState state = State(job_id);
    if (IsFinal(state)) return true;
    Pass(absl::Milliseconds(100));
    TrainStep();
  }
  return false;
}

}  // namespace cairn
