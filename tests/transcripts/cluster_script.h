// A transcript's cluster: a coordinator's core among ps and workers that do what they are told (tests/unit/coordinator/
// fake_cluster.h), and the commands of its script. README.md lists them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/transcripts/transcript.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {

class ClusterScript {
 public:
  ClusterScript();

  // What the core was told and what it did, a line each. Errors: INVALID_ARGUMENT, NOT_FOUND.
  absl::StatusOr<std::string> Run(const Command& command);

 private:
  absl::Status RunCluster(const Command& command);
  absl::Status RunJob(const Command& command);
  absl::Status RunNode(const Command& command);
  absl::Status RunFault(const Command& command, FakeNode& node);
  absl::StatusOr<FakeNode*> NodeNamed(const std::string& name);
  absl::Status Say(FakeNode& node, const std::string& message);
  absl::Status Restore(const Command& command);
  void Show(uint64_t job_id);
  void Observe(const Event& event, const Effects& effects);
  std::string EventText(const Event& event);
  std::string EffectText(const Effect& effect);
  // Apart from those of FakeCluster::Submit.
  ReplyToken NewCall() { return ReplyToken{kFirstCall + calls_++}; }
  std::string NameOf(SessionToken session) const;

  static constexpr uint64_t kFirstCall = 1'000'000;
  Cluster cluster_{0, 0};
  uint64_t calls_ = 0;
  std::map<SessionToken, std::string> names_;
  absl::Time start_;
  std::string out_;
};

}  // namespace cairn
