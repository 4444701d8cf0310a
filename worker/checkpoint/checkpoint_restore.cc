#include "worker/checkpoint/checkpoint_restore.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/checkpoint_name.h"
#include "common/model/fault_check.h"
#include "common/model/graph.h"
#include "common/model/initializer.h"
#include "common/model/metric_sums.h"
#include "common/model/optimizer_slots.h"
#include "common/model/optimizer_variables.h"
#include "common/model/strategy_check.h"
#include "common/tensor/dtype.h"
#include "worker/checkpoint/checkpoint_files.h"

namespace cairn {
namespace {

constexpr char kInstead[] = "to start a new job with only its weights, give it as initial_weights";

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

absl::Status CheckLayers(const CheckpointManifest& manifest, const Graph& graph, const std::string& where) {
  CAIRN_ASSIGN_OR_RETURN(const Graph theirs, Graph::Build(manifest.spec.model()));
  for (size_t i = 0; i < std::min(theirs.nodes().size(), graph.nodes().size()); ++i) {
    const Node &a = theirs.nodes()[i], &b = graph.nodes()[i];
    if (google::protobuf::util::MessageDifferencer::Equals(a.layer, b.layer)) continue;
    for (size_t v = 0; v < std::min(a.variables.size(), b.variables.size()); ++v) {
      const Variable& old_one = theirs.variables()[static_cast<size_t>(a.variables[v])];
      const Variable& new_one = graph.variables()[static_cast<size_t>(b.variables[v])];
      if (old_one.name != new_one.name || old_one.shape == new_one.shape) continue;
      return Bad("variable \"", new_one.name, "\": shape ", ToString(old_one.shape), " in ", where, ", ",
                 ToString(new_one.shape), " in the model; use the same model; ", kInstead);
    }
    return Bad("layer \"", b.name, "\": it is not the checkpoint's layer \"", a.name, "\" in ", where,
               "; use the same model; ", kInstead);
  }
  if (theirs.nodes().size() == graph.nodes().size()) return absl::OkStatus();
  return Bad("model.layers: ", graph.nodes().size(), ", but ", theirs.nodes().size(), " in ", where,
             "; use the same model; ", kInstead);
}

absl::Status CheckResume(const CheckpointManifest& manifest, const v1::JobSpec& spec, const Graph& graph,
                         int64_t steps_per_epoch, const std::string& where) {
  const v1::JobSpec& theirs = manifest.spec;
  CAIRN_RETURN_IF_ERROR(CheckLayers(manifest, graph, where));
  const std::vector<std::string> slots = SlotNames(spec.optimizer()), their_slots = SlotNames(theirs.optimizer());
  if (spec.optimizer().kind_case() != theirs.optimizer().kind_case() || slots != their_slots) {
    return Bad("optimizer: it keeps [", absl::StrJoin(slots, ", "), "], that of ", where, " [",
               absl::StrJoin(their_slots, ", "), "]; use the same kind of optimizer; ", kInstead);
  }
  if (spec.batch_size() != theirs.batch_size()) {
    return Bad("batch_size: ", spec.batch_size(), ", but ", theirs.batch_size(), " in ", where, "; set it to that; ",
               kInstead);
  }
  if (std::max(spec.accumulate_steps(), 1) != std::max(theirs.accumulate_steps(), 1)) {
    return Bad("accumulate_steps: ", spec.accumulate_steps(), ", but ", theirs.accumulate_steps(), " in ", where,
               "; set it to that; ", kInstead);
  }
  if (IsSynchronous(spec) != manifest.synchronous) {
    return Bad("strategy: ", where, " is of a job that was ", manifest.synchronous ? "synchronous" : "asynchronous",
               ", this one is not; use strategy ", v1::Strategy_Name(theirs.strategy()), "; ", kInstead);
  }
  if (steps_per_epoch <= 0) return absl::OkStatus();
  if (steps_per_epoch != manifest.steps_per_epoch) {
    return Bad("steps_per_epoch: ", steps_per_epoch, ", but ", manifest.steps_per_epoch, " in ", where,
               " (written with ", manifest.train_examples, " training examples): its place in the epoch means nothing ",
               "here; use the same data; ", kInstead);
  }
  if (manifest.step <= steps_per_epoch * spec.epochs()) return absl::OkStatus();
  return Bad("epochs: ", spec.epochs(), " end at step ", steps_per_epoch * spec.epochs(), ", but ", where,
             " is at step ", manifest.step, "; raise epochs");
}

// Two jobs may share a directory by mistake: then the `best` of one is renamed to make room for the other's.
absl::Status CheckPlace(uint64_t job_id, const v1::JobSpec& spec, const Checkpoint& checkpoint) {
  const std::string& path = checkpoint.path;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const bool began_with = !spec.resume_from().empty() && (path == spec.resume_from() || parent == spec.resume_from());
  const bool own_place =
      path == CheckpointPath(spec, checkpoint.manifest.step) || path == CheckpointPath(spec, 0, true);
  if (job_id == 0 || began_with || !own_place) return absl::OkStatus();
  return CheckWrittenBy(job_id, spec, checkpoint);
}

RestoredState EmptyState(const v1::JobSpec& spec, const Graph& graph) {
  RestoredState state;
  const size_t bytes = static_cast<size_t>(graph.space_size()) * sizeof(float);
  state.values = Buffer::Zeros(bytes);
  for (size_t i = 0; i < SlotNames(spec.optimizer()).size(); ++i) {
    Buffer slot = Buffer::Allocate(bytes);
    std::fill_n(slot.mutable_floats().begin(), graph.space_size(),
                InitialSlotValue(spec.optimizer(), static_cast<int>(i)));
    state.slots.push_back(std::move(slot));
  }
  return state;
}

// Numbers of the parameter space from `offset` on.
void Copy(const Safetensor& tensor, int64_t offset, Buffer& into) {
  ToFloat({tensor.data.data(), tensor.data.size()}, tensor.dtype,
          into.mutable_floats().subspan(static_cast<size_t>(offset), static_cast<size_t>(NumElements(tensor.shape))));
}

std::map<std::string, const Safetensor*> ByName(const SafetensorsFile& file) {
  std::map<std::string, const Safetensor*> tensors;
  for (const Safetensor& tensor : file.tensors) tensors[tensor.name] = &tensor;
  return tensors;
}

// The variables that spec.initial_weights_skip selects.
absl::StatusOr<std::set<std::string>> Skipped(const v1::JobSpec& spec, const Graph& graph) {
  std::set<std::string> skipped;
  for (const std::string& name : spec.initial_weights_skip()) {
    const size_t before = skipped.size();
    for (const Variable& v : graph.variables()) {
      if (v.name == name || graph.nodes()[static_cast<size_t>(v.node)].name == name) skipped.insert(v.name);
    }
    if (skipped.size() == before) {
      return Bad("initial_weights_skip: \"", name, "\" is neither a layer with variables nor a variable of the model");
    }
  }
  return skipped;
}

// Where a state is read from, and what of it.
struct Source {
  const std::string& path;
  absl::Span<const std::string> fallbacks;
  RemoteFiles* remote = nullptr;
  TensorsRead what = TensorsRead::kWhole;
};

absl::StatusOr<FoundCheckpoint> OpenToResume(const v1::JobSpec& spec, const Graph& graph, const Source& source,
                                             int64_t steps_per_epoch, uint64_t job_id) {
  const auto accepts = [&](const Checkpoint& checkpoint) { return CheckPlace(job_id, spec, checkpoint); };
  CAIRN_ASSIGN_OR_RETURN(FoundCheckpoint found,
                         OpenCheckpoint(source.path, source.fallbacks, accepts, source.remote, source.what));
  const Checkpoint& checkpoint = found.checkpoint;
  CAIRN_RETURN_IF_ERROR(CheckResume(checkpoint.manifest, spec, graph, steps_per_epoch, checkpoint.path));
  return found;
}

struct StartingWeights {
  std::string path;
  std::vector<std::string> skipped;
  SafetensorsFile file;
  std::set<std::string> kept;  // variables that keep their initial values
};

absl::Status CheckVariables(const StartingWeights& weights, const Graph& graph) {
  const auto tensors = ByName(weights.file);
  for (const Variable& v : graph.variables()) {
    if (weights.kept.contains(v.name)) continue;
    const std::string& layer = graph.nodes()[static_cast<size_t>(v.node)].name;
    const std::string advice = absl::StrFormat(
        "; where the layer shall start with its own initial values, say initial_weights_skip: \"%s\"", layer);
    const auto it = tensors.find(v.name);
    if (it == tensors.end()) {
      return Bad("variable \"", v.name, "\" is not in ", weights.path, ", which holds ", tensors.size(), " tensors",
                 advice);
    }
    if (it->second->shape != v.shape) {
      return Bad("variable \"", v.name, "\": shape ", ToString(it->second->shape), " in ", weights.path, ", ",
                 ToString(v.shape), " in the model", advice);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StartingWeights> OpenWeights(const v1::JobSpec& spec, const Graph& graph, const Source& source,
                                            absl::Duration fetch_max) {
  StartingWeights weights;
  CAIRN_ASSIGN_OR_RETURN(weights.kept, Skipped(spec, graph));
  weights.path = source.path;
  CAIRN_ASSIGN_OR_RETURN(const bool folder, IsJobFolder(source.path, source.remote));
  if (folder) {
    CAIRN_ASSIGN_OR_RETURN(FoundCheckpoint found,
                           OpenCheckpoint(source.path, source.fallbacks, nullptr, source.remote, source.what));
    weights.path = found.checkpoint.path;
    weights.skipped = std::move(found.skipped);
    weights.file = std::move(found.checkpoint.model);
  } else {
    const auto load = source.what == TensorsRead::kShapes ? LoadJobWeightShapes : LoadJobWeights;
    CAIRN_ASSIGN_OR_RETURN(weights.file, load(source.path, graph, source.remote, fetch_max));
  }
  CAIRN_RETURN_IF_ERROR(CheckVariables(weights, graph));
  return weights;
}

}  // namespace

absl::StatusOr<RestoredState> RestoreCheckpoint(const v1::JobSpec& spec, const std::string& path,
                                                absl::Span<const std::string> fallbacks, int64_t steps_per_epoch,
                                                uint64_t job_id, RemoteFiles* remote) {
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_ASSIGN_OR_RETURN(FoundCheckpoint found,
                         OpenToResume(spec, graph, {path, fallbacks, remote}, steps_per_epoch, job_id));
  const Checkpoint& checkpoint = found.checkpoint;

  RestoredState state = EmptyState(spec, graph);
  const auto variables = ByName(checkpoint.model), slots = ByName(checkpoint.optimizer);
  for (const Variable& v : graph.variables()) {  // all exist: the reader and CheckResume have checked that
    Copy(*variables.at(v.name), v.offset, state.values);
    if (v.kind != VariableKind::kTrainable) continue;
    for (const SlotTensor& t : SlotTensorsOf(spec.optimizer(), v)) {
      Copy(*slots.at(absl::StrCat(v.name, "/", t.name)), v.offset + t.offset, state.slots[static_cast<size_t>(t.slot)]);
    }
  }
  state.path = checkpoint.path;
  state.skipped = std::move(found.skipped);
  state.step = checkpoint.manifest.step;
  if (spec.replicas() == checkpoint.manifest.spec.replicas()) state.replica_step = checkpoint.manifest.replica_step;
  state.manifest = checkpoint.manifest;
  return state;
}

absl::StatusOr<FoundCheckpoint> CheckRestoreCheckpoint(const v1::JobSpec& spec, const std::string& path,
                                                       int64_t steps_per_epoch, RemoteFiles* remote) {
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  return OpenToResume(spec, graph, {path, {}, remote, TensorsRead::kShapes}, steps_per_epoch, /*job_id=*/0);
}

absl::StatusOr<RestoredState> RestoreWeights(const v1::JobSpec& spec, const std::string& path,
                                             absl::Span<const std::string> fallbacks, RemoteFiles* remote,
                                             absl::Duration fetch_max) {
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_ASSIGN_OR_RETURN(StartingWeights weights, OpenWeights(spec, graph, {path, fallbacks, remote}, fetch_max));
  RestoredState state = EmptyState(spec, graph);
  state.weights_only = true;
  state.path = std::move(weights.path);
  state.skipped = std::move(weights.skipped);
  InitializeRange(graph, spec.seed(), 0, state.values.mutable_floats());
  const auto tensors = ByName(weights.file);
  for (const Variable& v : graph.variables()) {
    if (!weights.kept.contains(v.name)) Copy(*tensors.at(v.name), v.offset, state.values);
  }
  return state;
}

absl::StatusOr<std::string> CheckRestoreWeights(const v1::JobSpec& spec, const std::string& path, RemoteFiles* remote,
                                                absl::Duration fetch_max) {
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_ASSIGN_OR_RETURN(const StartingWeights weights,
                         OpenWeights(spec, graph, {path, {}, remote, TensorsRead::kShapes}, fetch_max));
  return weights.path;
}

v1::PartitionImage ImageHeader(const RestoredState& state, uint64_t begin, uint64_t end, int32_t replicas,
                               int32_t local_sync) {
  v1::PartitionImage image;
  image.set_begin(begin);
  image.set_end(end);
  image.set_slots(static_cast<uint32_t>(state.slots.size()));
  const uint64_t step = static_cast<uint64_t>(state.step);
  image.set_version(step);
  std::vector<uint64_t> sequences(static_cast<size_t>(replicas), step);
  if (!state.weights_only && !state.manifest.synchronous) {
    const bool same_replicas = replicas == state.manifest.spec.replicas();
    if (same_replicas) sequences.assign(sequences.size(), UINT64_MAX);
    for (const CheckpointPartition& p : state.manifest.partitions) {
      if (p.end <= begin || p.begin >= end) continue;
      image.set_version(std::max(image.version(), p.version));
      for (size_t r = 0; same_replicas && r < sequences.size(); ++r) {
        sequences[r] = std::min(sequences[r], p.sequences[r]);
      }
    }
  }
  if (!state.weights_only && state.manifest.loss_scale.scale() > 0)
    *image.mutable_loss_scale() = state.manifest.loss_scale;
  for (size_t unit = 0; unit < sequences.size(); unit += static_cast<size_t>(local_sync)) {
    const auto first = sequences.begin() + static_cast<int64_t>(unit);
    image.mutable_sequences()->add_last_sequence(*std::min_element(first, first + local_sync));
  }
  return image;
}

EpochList FiguresAt(const RestoredState& state, const v1::PartitionImage& first, const v1::JobSpec& spec) {
  const CheckpointManifest& m = state.manifest;
  if (state.weights_only) return {};
  const auto& sequences = first.sequences().last_sequence();  // one per unit
  const auto local_sync = static_cast<size_t>(LocalSyncOf(spec));
  bool as_cut = MetricSumCount(m.spec) == MetricSumCount(spec);
  for (int unit = 0; !m.synchronous && as_cut && unit < sequences.size(); ++unit) {
    const std::vector<uint64_t>& cut = m.partitions.front().sequences;
    const size_t replica = static_cast<size_t>(unit) * local_sync;
    as_cut = !m.figures.empty() && replica < cut.size() && cut[replica] == sequences[unit];
  }
  if (as_cut) return m.figures;
  EpochList figures;
  if (m.synchronous || sequences.empty()) return figures;
  const auto steps = static_cast<uint64_t>(m.steps_per_epoch);
  const uint64_t newest = *std::max_element(sequences.begin(), sequences.end());
  for (uint64_t epoch = static_cast<uint64_t>(state.step) / steps; epoch * steps < newest; ++epoch) {
    v1::EpochFigures done;
    done.set_epoch(static_cast<int32_t>(epoch));
    for (const uint64_t sequence : sequences) {
      const uint64_t of_epoch = std::min(sequence - std::min(sequence, epoch * steps), steps);
      done.set_replica_steps(done.replica_steps() + of_epoch * static_cast<uint64_t>(local_sync));
    }
    AddSums({}, MetricSumCount(spec), *done.mutable_train());
    CountFigures(done, MetricSumCount(spec), figures);
  }
  return figures;
}

std::vector<Frame> RestoreFrames(const v1::Restore& command, const RestoredState& state,
                                 const v1::PartitionRange& range) {
  v1::PartitionImage header =
      ImageHeader(state, range.begin(), range.end(), command.spec().replicas(), LocalSyncOf(command.spec()));
  if (range.begin() == 0) *header.mutable_figures() = FiguresAt(state, header, command.spec());
  std::vector<Frame> frames;
  for (size_t t = 0; t <= state.slots.size(); ++t) {
    Frame& f = frames.emplace_back();
    f.kind = v1::ExchangeFrame::IMAGE;
    f.job = JobId(command.job_id());
    f.partition = PartitionId(range.partition());
    f.generation = Generation(command.generation());
    f.version = header.version();
    f.dtype = v1::FLOAT32;
    f.tensor = static_cast<uint32_t>(t);
    f.tensors = static_cast<uint32_t>(state.slots.size() + 1);
    if (t == 0) f.image = header.SerializeAsString();
    const Buffer& from = t == 0 ? state.values : state.slots[t - 1];
    f.payload = from.Slice(range.begin() * sizeof(float), (range.end() - range.begin()) * sizeof(float));
    f.payload_total = f.payload.size();
  }
  return frames;
}

}  // namespace cairn
