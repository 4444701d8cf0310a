#include "worker/backend/cudnn/join.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/tensor/dtype.h"

namespace cairn::cudnn {
namespace {

absl::Status FromKernel(kernels::Error error) {
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("adding up gradients: CUDA error ", error));
}

DType TypeOf(v1::DataType type) {
  return type == v1::BFLOAT16 ? DType::kBFloat16 : type == v1::FLOAT16 ? DType::kFloat16 : DType::kFloat32;
}

}  // namespace

// ---- memory ----

absl::StatusOr<Block> JoinMemory::Take(const std::shared_ptr<const Graph>& graph, Machine& machine) {
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = spares_.begin(); it != spares_.end(); ++it) {
      if (it->device != machine.device() || it->graph.lock() != graph) continue;
      Block block = std::move(it->block);
      spares_.erase(it);
      return block;
    }
  }
  return machine.Allocate(graph->space_size() * static_cast<int64_t>(sizeof(float)));
}

void JoinMemory::Give(const std::shared_ptr<const Graph>& graph, int device, Block block) {
  absl::MutexLock lock(&mutex_);
  spares_.push_back({graph, device, std::move(block)});
}

void JoinMemory::DropGone() {
  absl::MutexLock lock(&mutex_);
  spares_.remove_if([](const Spare& spare) { return spare.graph.expired(); });
}

// ---- the tree ----

struct DeviceJoin::Work {
  const Source& source;
  uint32_t range = 0;
  int64_t begin = 0, end = 0;
  absl::Duration patience;
  bool settled = true;              // nothing is under way
  std::vector<Room*> leaving = {};  // are free when it is settled

  int64_t numbers() const { return end - begin; }
  float* At(Room* room) const { return room->block.as<float>() + begin; }
};

absl::StatusOr<std::shared_ptr<DeviceJoin>> DeviceJoin::Make(std::shared_ptr<const Graph> graph, JoinOptions options,
                                                             std::shared_ptr<JoinMemory> memory) {
  const int64_t space = graph->space_size();
  const bool ordered =
      std::is_sorted(options.ends.begin(), options.ends.end(), std::less_equal<>()) &&
      std::all_of(options.ends.begin(), options.ends.end(), [](int64_t end) { return end % kSpaceAlignment == 0; });
  const bool any = std::find(options.leaves.begin(), options.leaves.end(), true) != options.leaves.end();
  if (options.ends.empty() || options.ends.front() <= 0 || options.ends.back() != space || !ordered ||
      options.leaves.size() != options.node.count || !any || cairn::SizeOf(options.type) == 0 ||
      options.layout.shift < 0 || options.layout.shift > kFloat16ShiftMax ||
      options.into.size() < static_cast<size_t>(space) * cairn::SizeOf(options.type)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a sum of gradients: ", options.leaves.size(), " leaves of ", ToString(options.node), ", ", options.ends.size(),
        " ranges and ", options.into.size(), " bytes do not fit a space of ", space, " numbers"));
  }
  return std::shared_ptr<DeviceJoin>(new DeviceJoin(std::move(graph), std::move(options), std::move(memory)));
}

DeviceJoin::DeviceJoin(std::shared_ptr<const Graph> graph, JoinOptions options, std::shared_ptr<JoinMemory> memory)
    : graph_(std::move(graph)), options_(std::move(options)), into_(options_.into), memory_(std::move(memory)) {
  int64_t begin = 0;
  for (const int64_t end : options_.ends) {
    v1::PartitionRange& range = ranges_.emplace_back();
    range.set_begin(static_cast<uint64_t>(begin));
    range.set_end(static_cast<uint64_t>(end));
    begin = end;
  }
  leaves_.assign(options_.node.count, -1);
  Grow(options_.node);
  left_.assign(ranges_.size(), std::vector<Part>(nodes_.size()));
}

DeviceJoin::~DeviceJoin() {
  for (Room& room : rooms_) memory_->Give(graph_, room.device, std::move(room.block));
}

int DeviceJoin::Grow(const TreeNode& node) {
  if (node.count == 1) {
    const uint32_t leaf = node.first - options_.node.first;
    if (!options_.leaves[leaf]) return -1;
    leaves_[leaf] = static_cast<int>(nodes_.size());
    nodes_.emplace_back();
    return leaves_[leaf];
  }
  const int left = Grow(LeftChild(node)), right = Grow(RightChild(node));
  if (left < 0 || right < 0) return std::max(left, right);
  const int own = static_cast<int>(nodes_.size());
  nodes_.emplace_back();
  nodes_[left] = {own, right};
  nodes_[right] = {own, left};
  return own;
}

// ---- a range of a replica ----

absl::StatusOr<DeviceJoin::Room*> DeviceJoin::TakeRoom(Machine& machine, uint32_t range) {
  {
    absl::MutexLock lock(&mutex_);
    for (Room& room : rooms_) {
      if (room.device != machine.device() || room.taken[range]) continue;
      room.taken[range] = 1;
      return &room;
    }
  }
  CAIRN_ASSIGN_OR_RETURN(Block block, memory_->Take(graph_, machine));
  absl::MutexLock lock(&mutex_);
  Room& room = rooms_.emplace_back(Room{machine.device(), std::move(block), std::vector<char>(ranges_.size())});
  room.taken[range] = 1;
  return &room;
}

absl::Status DeviceJoin::Source::EachPart(
    int64_t from, int64_t to, const std::function<absl::Status(int64_t begin, int64_t end, float factor)>& part) const {
  const auto some = [&](int64_t begin, int64_t end, float with) {
    return begin < end ? part(begin, end, with) : absl::OkStatus();
  };
  if (factor == 1) return some(from, to, 1);
  for (const auto& [begin, end] : not_scaled) {
    const int64_t first = std::clamp(begin, from, to), last = std::clamp(end, first, to);
    CAIRN_RETURN_IF_ERROR(some(from, first, factor));
    CAIRN_RETURN_IF_ERROR(some(first, last, 1));
    from = last;
  }
  return some(from, to, factor);
}

// Each part of [begin, end) that travels in one type, in order. Stops at an error.
absl::Status DeviceJoin::EachType(
    int64_t begin, int64_t end, const std::function<absl::Status(DType type, int64_t begin, int64_t end)>& part) const {
  absl::Status status;
  EachRun({options_.type, 0, 0, begin, &options_.layout}, end - begin,
          [&](v1::DataType type, int64_t first, int64_t last) {
            if (status.ok()) status = part(TypeOf(type), begin + first, begin + last);
          });
  return status;
}

// Copies the gradient, times the factor and rounded, into a room.
absl::Status DeviceJoin::Park(Work& work, Part* have) {
  const Source& source = work.source;
  CAIRN_ASSIGN_OR_RETURN(have->room, TakeRoom(source.machine, work.range));
  work.settled = false;
  return source.EachPart(work.begin, work.end, [&](int64_t begin, int64_t end, float factor) {
    return EachType(begin, end, [&](DType type, int64_t first, int64_t last) {
      const float* from = source.gradient + first;
      float* to = have->room->block.as<float>() + first;
      return FromKernel(kernels::RoundedSum(source.machine.aside(), last - first, {1, {from}}, factor, to, type,
                                            options_.layout.shift));
    });
  });
}

// Adds the sibling's part and the one here; the sum is `have`.
absl::Status DeviceJoin::AddTo(Work& work, Part other, Part* have) {
  Machine& machine = work.source.machine;
  work.settled = false;
  if (other.room->device != machine.device()) {
    CAIRN_ASSIGN_OR_RETURN(Room* const local, TakeRoom(machine, work.range));
    CAIRN_RETURN_IF_ERROR(machine.CopyPeer(work.At(local), work.At(other.room), other.room->device,
                                           work.numbers() * static_cast<int64_t>(sizeof(float))));
    work.leaving.push_back(other.room);
    other.room = local;
  }
  float* const to = other.room->block.as<float>();
  const float* const from = *have ? have->room->block.as<float>() : work.source.gradient;
  if (*have) work.leaving.push_back(have->room);
  *have = other;
  return EachType(work.begin, work.end, [&](DType type, int64_t first, int64_t last) {
    return FromKernel(kernels::RoundedSum(machine.aside(), last - first, {2, {to + first, from + first}}, 1, to + first,
                                          type, options_.layout.shift));
  });
}

absl::Status DeviceJoin::Settle(Work& work) {
  CAIRN_RETURN_IF_ERROR(work.source.machine.WaitAside(work.patience));
  work.settled = true;
  absl::MutexLock lock(&mutex_);
  for (Room* room : work.leaving) room->taken[work.range] = 0;
  work.leaving.clear();
  return absl::OkStatus();
}

absl::Status DeviceJoin::GiveOut(Work& work, Part have) {
  Machine& machine = work.source.machine;
  const auto element = static_cast<int64_t>(cairn::SizeOf(options_.type));
  const int64_t at = work.begin * element, bytes = work.numbers() * element;
  const float* const sum = have ? have.room->block.as<float>() : work.source.gradient;
  const void* from = sum + work.begin;
  if (options_.type != v1::FLOAT32) {
    CAIRN_RETURN_IF_ERROR(EachType(work.begin, work.end, [&](DType type, int64_t first, int64_t last) {
      const float down = type == DType::kFloat16 ? std::ldexp(1.0f, -options_.layout.shift) : 1;
      // + 0 would lose the sign of a zero.
      return FromKernel(kernels::Affine(machine.aside(), last - first, down, -0.0f, sum + first, DType::kFloat32,
                                        work.source.rounded + first * element, type, false));
    }));
    from = work.source.rounded + at;
  }
  CAIRN_RETURN_IF_ERROR(machine.CopyOutAside(work.source.pinned + at, from, bytes));
  if (have) work.leaving.push_back(have.room);
  CAIRN_RETURN_IF_ERROR(Settle(work));
  std::memcpy(into_.mutable_data() + at, work.source.pinned + at, static_cast<size_t>(bytes));
  options_.ready(work.range);
  return absl::OkStatus();
}

absl::Status DeviceJoin::Add(uint32_t leaf, uint32_t range, const Source& source, absl::Duration patience) {
  CAIRN_CHECK(HasLeaf(leaf), "a replica without examples adds nothing");
  Work work{source, range, static_cast<int64_t>(ranges_[range].begin()), static_cast<int64_t>(ranges_[range].end()),
            patience};
  Part have;
  if (source.factor != 1) CAIRN_RETURN_IF_ERROR(Park(work, &have));
  int node = leaves_[leaf];
  while (nodes_[node].parent >= 0) {
    Part other;
    {
      absl::MutexLock lock(&mutex_);
      std::vector<Part>& left = left_[range];
      other = std::exchange(left[nodes_[node].sibling], Part());
      if (!other && have && work.settled) {
        left[node] = have;  // whoever brings the sibling goes on
        return absl::OkStatus();
      }
    }
    if (other) {
      CAIRN_RETURN_IF_ERROR(AddTo(work, other, &have));
      node = nodes_[node].parent;
    } else {
      // The part must be complete here; the sibling may come meanwhile.
      if (!have) CAIRN_RETURN_IF_ERROR(Park(work, &have));
      CAIRN_RETURN_IF_ERROR(Settle(work));
    }
  }
  return GiveOut(work, have);
}

// ---- pieces ----

absl::Status PieceSum::Prepare(Machine& machine, int64_t numbers) {
  if (sum_.bytes() > 0) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(sum_, machine.Allocate(numbers * static_cast<int64_t>(sizeof(float))));
  return absl::OkStatus();
}

absl::Status PieceSum::Add(const DeviceJoin::Source& piece, int64_t from, int64_t to, bool first) {
  return piece.EachPart(from, to, [&](int64_t begin, int64_t end, float factor) -> absl::Status {
    const kernels::Stream stream = piece.machine.aside();
    float* const gradient = piece.gradient + begin;
    float* const sum = sum_.as<float>() + begin;
    // The loss scale is divided out before anything is added, as on the host. The next piece overwrites the gradient.
    if (factor != 1)
      CAIRN_RETURN_IF_ERROR(
          FromKernel(kernels::Sum(stream, end - begin, {1, {gradient}}, factor, gradient, DType::kFloat32)));
    return FromKernel(
        first ? kernels::Affine(stream, end - begin, 1, 0, gradient, DType::kFloat32, sum, DType::kFloat32, false)
              : kernels::Sum(stream, end - begin, {2, {sum, gradient}}, 1, sum, DType::kFloat32));
  });
}

}  // namespace cairn::cudnn
