// FaultyFiles: the process' calls on files below one folder, counted, made to fail, and remembered as a disk would.
//
// It stands between the program and the C library (the program's own open, write, fsync, ... come first), so that a
// store is tested as it is built, RocksDB included. Thread-safe. Invariants:
//   1. Calls on other files are passed on unchanged.
//   2. What a disk holds is modelled as POSIX promises it and no better: a file has the bytes of its last sync, a
//      folder the names of its last sync. What came later may be there or not. No call reaches the real disk's cache
//      flush.
//   3. A sync that fails loses what it should have written: as Linux, which then takes the pages for clean.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace cairn {

enum class FaultKind {
  kIo,       // EIO
  kNoSpace,  // ENOSPC: of what needs room; a sync with it fails too
  kShort,    // half of the bytes are written, and their number is returned
};

class FaultyFiles {
 public:
  static FaultyFiles& Instance();

  // Begins anew with the folder as it is: all of it is on the disk. An absolute path without a trailing slash.
  // remember = false: only counts and fails.
  void Watch(const std::string& folder, bool remember = true);
  void Stop();  // every call is passed on again

  uint64_t calls() const;  // that change something, since Watch
  // The call with this number (from 0) fails; kShort: the next write from it on. Once.
  void FailCall(uint64_t number, FaultKind kind);
  bool failed() const;  // that call was made
  // Runs in a thread that syncs, before its sync begins; outside of any lock.
  void OnSync(std::function<void(const std::string& path)> hook);

  // From the call with this number on no call has an effect: each fails with EIO.
  void CutPower(uint64_t at_call = 0);
  // Writes to an empty folder what the disk holds. share: 0: only what is certain; else the chance of each later write
  // to be there too, and of names in the order in which they changed.
  void RestoreTo(const std::string& folder, double share, uint32_t seed) const;
};

}  // namespace cairn
