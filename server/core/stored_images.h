// StoredImages: the images of a copy in the store: when one is due, which one is being written, and what it covers.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. At most one image is being written.
//   2. The final image of an ended job has no slots, and replaces everything else in the store.
//   3. If writing an image fails for which a job's end waits, it is due again at the next tick, not before.
#pragma once

#include <cstdint>
#include <optional>

#include "server/core/copy_context.h"
#include "server/core/snapshot_stride.h"

namespace cairn {

// Activities of a copy for which an image has to wait.
struct CopyActivity {
  bool updating = false;   // updates are accepted but not applied
  bool receiving = false;  // an image of the primary is being received
  bool restoring = false;  // a checkpoint is being received
};

class StoredImages {
 public:
  explicit StoredImages(CopyContext& copy)
      : copy_(copy), stride_(copy.config.image.snapshot_every), to_note_(copy.state.image_version) {}

  bool Due(const CopyActivity& activity) const;
  void Take(const CopyActivity& activity);
  // Call after every update: SNAPSHOT jobs take an image at some of them.
  void OnApplied(const CopyActivity& activity);
  // True: the final image of an ended job is in the store.
  bool OnWritten(const ImageWrittenEvent& event);
  void OnTick() { failed_ = false; }
  // The copy began with the final image of an ended job, which is all that the store has.
  void BeginAtRest() { final_ = copy_.state.version; }
  void EndTraining() { ends_even_ = copy_.config.keep; }  // all its steps were done before; else it ended within one
  // The copy's state was replaced.
  void StateReplaced();

  bool writing() const { return under_way_.has_value(); }
  // The store has the values of this version, and nothing else.
  bool has_final() const { return final_ == copy_.state.version; }
  // Whether a SNAPSHOT job's version has no image or, after training, none that survives power loss.
  bool in_memory() const;
  // The version of the image that the next Persist names, to delete what the image makes superfluous. 0: none.
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
  bool synced_ = true;      // the newest image; one that Recover returned counts as synced
  bool failed_ = false;     // the last write failed
  uint64_t to_note_;        // the version for TakeNote; 0: none
  bool ends_even_ = false;  // all partitions of the job are at its last version: the previous version is no longer
                            // needed
  std::optional<uint64_t> final_;
};

}  // namespace cairn
