#include "common/model/step_plan.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

// A smaller partition is transferred so fast that cutting it gains nothing.
constexpr int64_t kCutBytesMin = int64_t{1} << 20;
constexpr int64_t kFirstPartitionParts = 8;

}  // namespace

StepPlan StepPlan::Of(const v1::JobSpec& spec, int64_t examples) {
  const int32_t pieces = std::max(spec.accumulate_steps(), 1);
  StepPlan plan = Make(examples, int64_t{spec.batch_size()} * pieces, std::max(spec.replicas(), 1),
                       spec.steps_per_epoch(), spec.epochs(), spec.data().drop_remainder());
  plan.pieces = pieces;
  return plan;
}

StepPlan StepPlan::Make(int64_t examples, int64_t batch_size, int32_t replicas, int64_t steps_per_epoch, int32_t epochs,
                        bool drop_remainder) {
  CAIRN_CHECK(examples >= 0 && batch_size > 0 && replicas > 0 && steps_per_epoch >= 0 && epochs >= 0,
              "a job that was not checked");
  StepPlan plan;
  plan.examples = examples;
  plan.batch_size = batch_size;
  plan.replicas = replicas;
  const bool whole = drop_remainder && examples >= batch_size;
  plan.batches = whole ? examples / batch_size : (examples + batch_size - 1) / batch_size;
  plan.steps_per_epoch = steps_per_epoch == 0 || examples == 0 ? plan.batches : steps_per_epoch;
  plan.total_steps = plan.steps_per_epoch * epochs;
  return plan;
}

PlaceRange StepPlan::Places(int64_t step, ReplicaId replica) const {
  const int64_t begin = step % steps_per_epoch % batches * batch_size;
  const int64_t end = std::min(begin + batch_size, examples);
  const PlaceRange share = Share(end - begin, replica.value, replicas);
  return {begin + share.begin, begin + share.end};
}

PlaceRange StepPlan::Piece(int64_t step, ReplicaId replica, int32_t piece) const {
  const PlaceRange places = Places(step, replica);
  const PlaceRange share = Share(places.size(), piece, pieces);
  return {places.begin + share.begin, places.begin + share.end};
}

PlaceRange Share(int64_t items, int64_t index, int64_t parts) {
  CAIRN_CHECK(items >= 0 && index >= 0 && index < parts, "no such part");
  const int64_t size = items / parts;
  const int64_t larger = items % parts;  // the first `larger` parts have one item more
  const int64_t begin = index * size + std::min(index, larger);
  return {begin, begin + size + (index < larger ? 1 : 0)};
}

std::vector<v1::PartitionRange> CutPartitions(int64_t space_size, int64_t partition_bytes) {
  const int64_t numbers = partition_bytes / 4;
  CAIRN_CHECK(numbers > 0 && numbers % kSpaceAlignment == 0, "partition_bytes is a multiple of 64");
  const int64_t least = numbers / kFirstPartitionParts;
  const bool room = space_size / numbers + kFirstPartitionParts <= kPartitionsMax;
  const bool cut_first =
      space_size > numbers && partition_bytes >= kCutBytesMin && least % kSpaceAlignment == 0 && room;
  std::vector<v1::PartitionRange> ranges;
  for (int64_t begin = 0, size; begin < space_size; begin += size) {
    size = cut_first && begin < numbers ? std::max(begin, least) : numbers;
    v1::PartitionRange& range = ranges.emplace_back();
    range.set_partition(static_cast<uint32_t>(ranges.size() - 1));
    range.set_begin(begin);
    range.set_end(std::min(begin + size, space_size));
  }
  return ranges;
}

}  // namespace cairn
