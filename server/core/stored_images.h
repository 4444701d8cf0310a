// StoredImages: the images of a copy in the store: when one is due, which one is being written, what it covers.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. At most one image is being written.
//   2. Of an ended job the last image holds the values alone, and takes the place of all that the store has.
//   3. An image that a job's end waits for and that could not be written is due again at the next tick, not before.
#pragma once

#include <cstdint>
#include <optional>

#include "server/core/copy_context.h"
#include "server/core/snapshot_stride.h"

namespace cairn {

// What a copy is doing that an image waits for.
struct CopyActivity {
  bool updating = false;   // updates are accepted and not applied
  bool receiving = false;  // an image of the primary is coming in
  bool restoring = false;  // a checkpoint is
};

class StoredImages {
 public:
  explicit StoredImages(CopyContext& copy)
      : copy_(copy), stride_(copy.config.image.snapshot_every), to_note_(copy.state.image_version) {}

  bool Due(const CopyActivity& activity) const;
  void Take(const CopyActivity& activity);
  // After every update: SNAPSHOT jobs take one now and then.
  void OnApplied(const CopyActivity& activity);
  // True: the last image of an ended job is in the store.
  bool OnWritten(const ImageWrittenEvent& event);
  void OnTick() { failed_ = false; }
  // The copy began with the last image of an ended job, which is all that the store has.
  void BeginAtRest() { final_ = copy_.state.version; }
  void EndTraining() { ends_even_ = copy_.config.keep; }  // all its steps were done before; else it ended within one
  // Another state took the place of the copy's.
  void StateReplaced();

  bool writing() const { return under_way_.has_value(); }
  // The store has the values of this version, and nothing else.
  bool has_final() const { return final_ == copy_.state.version; }
  // A SNAPSHOT job's version has no image; or, where the job trains no more, none that survives power loss.
  bool in_memory() const;
  // The version of the image that the next Persist is to note: what it makes superfluous goes with it. 0: none.
  uint64_t TakeNote();

 private:
  struct UnderWay {
    uint64_t version = 0;
    uint64_t log_bytes = 0;  // of the log that it covers
    bool synced = false;     // PartitionConfig::keep, when it was taken
    bool final = false;      // PartitionConfig::ended, likewise
  };

  Image MakeFinal() const;

  CopyContext& copy_;
  SnapshotStride stride_;
  std::optional<UnderWay> under_way_;
  bool synced_ = true;      // the newest one; what Recover gave counts as synced
  bool failed_ = false;     // the last one could not be written
  uint64_t to_note_;        // written
  bool ends_even_ = false;  // all partitions of the job are at the version that it ends with: nobody asks for the one
                            // before
  std::optional<uint64_t> final_;
};

}  // namespace cairn
