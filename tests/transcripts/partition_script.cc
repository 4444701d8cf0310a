#include "tests/transcripts/partition_script.h"

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/transcripts/message_text.h"

namespace cairn {
namespace {

constexpr uint64_t kWorker = 1;  // the stream of all workers

std::string FrameText(const Frame& frame) {
  std::string text = v1::ExchangeFrame::Kind_Name(frame.kind);
  if (frame.kind == v1::ExchangeFrame::ERROR) return absl::StrCat(text, " ", frame.status.ToString());
  if (frame.kind == v1::ExchangeFrame::VALUES && !frame.payload.empty())
    absl::StrAppend(&text, ", the first is ", frame.payload.floats()[0]);
  if (frame.sequence != 0) absl::StrAppend(&text, ", sequence ", frame.sequence);
  if (frame.kind == v1::ExchangeFrame::IMAGE) absl::StrAppend(&text, ", tensor ", frame.tensor, " of ", frame.tensors);
  return absl::StrCat(text, ", version ", frame.version);
}

}  // namespace

absl::StatusOr<std::string> PartitionScript::Run(const Command& command) {
  out_.clear();
  const std::string& verb = command.verb();
  if (verb == "partition") {
    CAIRN_ASSIGN_OR_RETURN(const int64_t replicas, command.Number("replicas", 1));
    replicas_ = static_cast<uint32_t>(replicas);
    return out_;
  }
  if (verb == "copy") {
    CAIRN_RETURN_IF_ERROR(StartCopy(command));
    return out_;
  }
  CAIRN_ASSIGN_OR_RETURN(Copy* const copy, CopyNamed(command.Word(0)));
  absl::Status status = absl::OkStatus();
  if (verb == "push") {
    status = Push(command, *copy);
  } else if (verb == "pull") {
    status = Pull(command, *copy);
  } else if (verb == "assign") {
    status = Assign(command, *copy);
  } else if (verb == "show") {
    Show(command.Word(0));
  } else {
    status = RunLink(command, command.Word(0));
  }
  CAIRN_RETURN_IF_ERROR(status);
  return out_;
}

absl::StatusOr<Copy*> PartitionScript::CopyNamed(const std::string& name) {
  const auto it = ps_.find(name);
  if (it == ps_.end()) return absl::NotFoundError(absl::StrCat("there is no ps \"", name, "\""));
  return it->second.copy.get();
}

// WORDS: "backup", or the backups of a primary, each NAME or NAME,in-sync.
AssignEvent PartitionScript::AssignmentOf(uint64_t generation, const std::vector<std::string>& words) {
  AssignEvent event{Generation(generation), false, {}};
  for (const std::string& word : words) {
    if (word == "backup") {
      event.backup = true;
      continue;
    }
    const std::vector<std::string> parts = absl::StrSplit(word, ',');
    v1::BackupRoute& route = event.backups.emplace_back();
    route.set_node(parts[0]);
    route.set_address(parts[0]);
    route.set_in_sync(parts.size() > 1 && parts[1] == "in-sync");
  }
  return event;
}

// copy PS GENERATION primary|backup [BACKUPS...]
absl::Status PartitionScript::StartCopy(const Command& command) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t generation, command.NumberAt(1));
  std::vector<std::string> words;
  for (size_t i = 2; !command.Word(i).empty(); ++i) {
    if (command.Word(i) != "primary") words.push_back(command.Word(i));
  }
  const AssignEvent event = AssignmentOf(static_cast<uint64_t>(generation), words);
  PartitionConfig config = Config(v1::LOGGED_AND_REPLICATED, event.backup);
  Dense(config).optimizer = OptimizerRule::From(v1::Optimizer());
  config.replicas = replicas_;
  config.generation = Generation(static_cast<uint64_t>(generation));
  ps_[command.Word(0)].copy = std::make_unique<Copy>(config, event);
  return absl::OkStatus();
}

// push PS replica=R sequence=S [generation=G]: a gradient of 4 examples, each number R + 1.
absl::Status PartitionScript::Push(const Command& command, Copy& copy) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t replica, command.Number("replica", 0));
  CAIRN_ASSIGN_OR_RETURN(const int64_t sequence, command.Number("sequence", 1));
  CAIRN_ASSIGN_OR_RETURN(const int64_t generation,
                         command.Number("generation", static_cast<int64_t>(copy.core.generation().value)));
  Frame frame = PushFrame(copy.core.config(), static_cast<uint32_t>(replica), 1, static_cast<uint64_t>(sequence),
                          static_cast<float>(replica + 1));
  frame.generation = Generation(static_cast<uint64_t>(generation));
  Step(command.Word(0), FrameEvent{kWorker, std::move(frame)},
       absl::StrCat("replica ", replica, " pushes sequence ", sequence, ", generation ", generation));
  return absl::OkStatus();
}

// pull PS [version=V]
absl::Status PartitionScript::Pull(const Command& command, Copy& copy) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t version, command.Number("version", -1));
  Frame frame = PullFrame(copy.core.config(), 900);
  if (version >= 0) frame.want_version = static_cast<uint64_t>(version);
  Step(command.Word(0), FrameEvent{kWorker, std::move(frame)},
       version >= 0 ? absl::StrCat("a pull of version ", version) : "a pull");
  return absl::OkStatus();
}

// assign PS GENERATION primary|backup [BACKUPS...]
absl::Status PartitionScript::Assign(const Command& command, Copy&) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t generation, command.NumberAt(1));
  std::vector<std::string> words;
  for (size_t i = 2; !command.Word(i).empty(); ++i) {
    if (command.Word(i) != "primary") words.push_back(command.Word(i));
  }
  AssignEvent event = AssignmentOf(static_cast<uint64_t>(generation), words);
  const std::string role = event.backup ? "backup" : "primary";
  Step(command.Word(0), std::move(event), absl::StrCat("generation ", generation, ": ", role));
  return absl::OkStatus();
}

// link PS TO: a stream; the images that are due go over it. unlink PS TO: it breaks.
absl::Status PartitionScript::RunLink(const Command& command, const std::string& from) {
  const std::string to = command.Word(1);
  if (command.verb() != "link" && command.verb() != "unlink")
    return absl::InvalidArgumentError(absl::StrCat("there is no command \"", command.verb(), "\""));
  CAIRN_ASSIGN_OR_RETURN(Copy* const copy, CopyNamed(from));
  CAIRN_RETURN_IF_ERROR(CopyNamed(to).status());
  if (command.verb() == "unlink") {
    Step(from, LinkDownEvent{to, ps_[to].streams}, absl::StrCat("the stream to ", to, " breaks"));
    ++ps_[to].streams;
    return absl::OkStatus();
  }
  Step(from, LinkUpEvent{to, ++ps_[to].streams}, absl::StrCat("a stream to ", to));
  if (copy->core.image_to_send(now_)) Step(from, SendImageEvent{}, "there is room for an image");
  return absl::OkStatus();
}

void PartitionScript::Step(const std::string& name, PartitionEvent event, const std::string& what) {
  const PartitionEffects effects = ps_[name].copy->Run(std::move(event), now_);
  absl::StrAppend(&out_, name, ": ", what, "\n");
  for (const PeerSend& send : effects.sends) {
    for (const Frame& frame : send.frames) absl::StrAppend(&out_, "  to ", send.address, ": ", FrameText(frame), "\n");
  }
  for (const PartitionReply& reply : effects.replies) {
    absl::StrAppend(&out_, "  answer ", reply.client == kWorker ? "the worker" : "the primary", ": ",
                    FrameText(reply.frame), "\n");
  }
  for (const v1::BackupReport& report : effects.reports)
    absl::StrAppend(&out_, "  tell the coordinator: ", FieldsText(report), "\n");
  Carry(name, effects);
}

// The frames to the other copies; a copy answers a primary on the primary's own stream, 100 + its number.
void PartitionScript::Carry(const std::string& from, const PartitionEffects& effects) {
  for (const PeerSend& send : effects.sends) {
    const auto to = ps_.find(send.address);
    if (to == ps_.end() || send.epoch != to->second.streams) continue;  // that stream is gone
    for (Frame frame : send.frames) {
      frame.payload = Buffer::CopyOf(frame.payload.data(), frame.payload.size());
      const std::string kind = v1::ExchangeFrame::Kind_Name(frame.kind);
      const uint64_t stream = 100 + send.epoch;
      const PartitionEffects answer = to->second.copy->Run(FrameEvent{stream, std::move(frame)}, now_);
      for (const PartitionReply& reply : answer.replies) {
        absl::StrAppend(&out_, to->first, ": takes ", kind, "\n  answer ", from, ": ", FrameText(reply.frame), "\n");
        Step(from, PeerFrameEvent{send.address, send.epoch, reply.frame}, absl::StrCat("the answer of ", send.address));
      }
    }
  }
}

void PartitionScript::Show(const std::string& name) {
  const PartitionCore& core = ps_[name].copy->core;
  absl::StrAppend(&out_, core.config().backup ? "backup" : "primary", ", generation ", core.generation().value,
                  ", version ", core.version(), ", the first value is ", Dense(core.state()).values().floats()[0],
                  core.fenced() ? ", fenced" : "", ", ", core.waiting(), " requests wait\n");
}

}  // namespace cairn
