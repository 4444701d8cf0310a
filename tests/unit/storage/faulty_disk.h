// What a disk below one folder holds, as POSIX promises it: for FaultyFiles and the functions that stand before the C
// library's. All of it under one lock.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/storage/faulty_files.h"

namespace cairn::faulty {

struct Node;
using NodePtr = std::shared_ptr<Node>;

struct Change {
  // of a file: bytes at an offset, or a new size
  std::optional<uint64_t> size;
  uint64_t offset = 0;
  std::string bytes;
  // of a folder: a name that is given or taken; a rename does both
  std::string gone, named;
  NodePtr node;
};

struct Node {
  bool folder = false;
  std::string synced;                      // a file's bytes on the disk
  std::map<std::string, NodePtr> names;    // a folder's, as the program sees them
  std::map<std::string, NodePtr> durable;  // on the disk
  std::vector<Change> pending;             // since the last sync
};

inline void Apply(const Change& change, std::string& bytes) {
  if (change.size) {
    bytes.resize(*change.size);
  } else {
    bytes.resize(std::max<size_t>(bytes.size(), change.offset + change.bytes.size()));
    bytes.replace(change.offset, change.bytes.size(), change.bytes);
  }
}

inline void Apply(const Change& change, std::map<std::string, NodePtr>& names) {
  if (!change.gone.empty()) names.erase(change.gone);
  if (!change.named.empty()) names[change.named] = change.node;
}

// Everything; one lock for all of it.
struct Disk {
  std::mutex mutex;
  bool on = false, remember = false, failed = false;
  std::string root;
  NodePtr tree;
  struct Open {
    NodePtr node;
    std::string path;
    bool append = false, only_read = false;
    uint64_t at = 0;  // of write()
  };
  std::map<int, Open> open;
  uint64_t calls = 0, fail_at = UINT64_MAX, power_off_at = UINT64_MAX;
  FaultKind kind = FaultKind::kIo;
  std::function<void(const std::string&)> on_sync;

  bool Covers(const char* path) const {
    return on && path != nullptr && std::strncmp(path, root.c_str(), root.size()) == 0 &&
           (path[root.size()] == '/' || path[root.size()] == 0);
  }
  // The folder that holds the path's last name, and that name; null: outside, or not there.
  NodePtr FolderOf(const std::string& path, std::string* name) const {
    if (!remember) return nullptr;
    NodePtr at = tree;
    const std::filesystem::path below = std::filesystem::path(path.substr(root.size())).relative_path();
    std::vector<std::string> parts;
    for (const auto& part : below) {
      if (!part.empty()) parts.push_back(part.string());
    }
    if (parts.empty()) return nullptr;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = at->names.find(parts[i]);
      if (found == at->names.end()) return nullptr;
      at = found->second;
    }
    *name = parts.back();
    return at;
  }
  NodePtr Find(const std::string& path) const {
    std::string name;
    const NodePtr folder = FolderOf(path, &name);
    if (folder == nullptr) return remember && path.size() <= root.size() + 1 ? tree : nullptr;
    const auto found = folder->names.find(name);
    return found == folder->names.end() ? nullptr : found->second;
  }
  static void Record(const NodePtr& folder, Change change) {
    Apply(change, folder->names);
    folder->pending.push_back(std::move(change));
  }
  // Counts a call that changes something. 0: it goes on; else the errno it fails with. `shortens`: kShort applies.
  int Count(bool needs_room, bool* shortens = nullptr) {
    const uint64_t number = calls++;
    if (number >= power_off_at) return EIO;
    if (number < fail_at) return 0;
    if (kind == FaultKind::kShort) {
      if (shortens == nullptr) return 0;
      *shortens = true;
    } else if (kind == FaultKind::kNoSpace && !needs_room) {
      return 0;  // the next one that needs room
    }
    fail_at = UINT64_MAX;
    failed = true;
    return kind == FaultKind::kShort ? 0 : kind == FaultKind::kIo ? EIO : ENOSPC;
  }
};

Disk& TheDisk();

}  // namespace cairn::faulty
