// Hdf5Handle: an id of the HDF5 library that is closed at the end of its scope. The library's lock must be held for its
// whole lifetime (hdf5_file.h).
#pragma once

#include <hdf5.h>

namespace cairn {

class Hdf5Handle {
 public:
  Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  const hid_t id_;
  herr_t (*const close_)(hid_t);
};

}  // namespace cairn
