#include "common/formats/hdf5_chunks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/formats/hdf5_filters.h"
#include "common/formats/limits.h"

namespace cairn {
namespace {

// The chunks of a small resizable array are larger than the array.
constexpr uint64_t kChunkBytesFree = uint64_t{1} << 20;

using Bytes = std::vector<uint8_t>;

class ChunkReader {
 public:
  ChunkReader(hid_t dataset, hid_t plist, hid_t type, const Shape& shape, absl::Span<float> out)
      : dataset_(dataset), plist_(plist), type_(type), shape_(shape.begin(), shape.end()), out_(out) {}

  absl::Status Read() {
    CAIRN_RETURN_IF_ERROR(LookAtChunks());
    CAIRN_RETURN_IF_ERROR(LookAtFilters());
    std::vector<hsize_t> at(shape_.size(), 0);
    do {
      CAIRN_RETURN_IF_ERROR(ReadChunk(at));
    } while (Advance(at, chunk_, shape_));
    return absl::OkStatus();
  }

 private:
  // Advances to the next position of a grid with these steps, the last dimension fastest. Returns false after the last.
  static bool Advance(std::vector<hsize_t>& at, const std::vector<hsize_t>& step, const std::vector<hsize_t>& end) {
    for (size_t d = at.size(); d-- > 0;) {
      at[d] += step[d];
      if (at[d] < end[d]) return true;
      at[d] = 0;
    }
    return false;
  }

  absl::Status LookAtChunks() {
    const int rank = static_cast<int>(shape_.size());
    chunk_.resize(shape_.size());
    if (rank == 0 || H5Pget_chunk(plist_, rank, chunk_.data()) != rank)
      return DamagedHdf5("its chunks have another rank");
    element_bytes_ = H5Tget_size(type_);
    chunk_bytes_ = element_bytes_;
    const uint64_t bytes_max = out_.size() * element_bytes_ + kChunkBytesFree;
    for (const hsize_t side : chunk_) {
      if (side == 0 || __builtin_mul_overflow(chunk_bytes_, static_cast<uint64_t>(side), &chunk_bytes_) ||
          chunk_bytes_ > bytes_max) {
        return DamagedHdf5("its chunks are larger than the array");
      }
    }
    if (H5Pget_fill_value(plist_, H5T_NATIVE_FLOAT, &fill_) < 0) return DamagedHdf5("its fill value cannot be read");
    return absl::OkStatus();
  }

  absl::Status LookAtFilters() {
    const int count = H5Pget_nfilters(plist_);
    if (count < 0 || count > kHdf5FiltersMax) return DamagedHdf5("its filters cannot be read");
    for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
      unsigned flags = 0, value = 0, config = 0;
      size_t values = 1;
      const H5Z_filter_t filter = H5Pget_filter2(plist_, i, &flags, &values, &value, 0, nullptr, &config);
      switch (filter) {
        case H5Z_FILTER_SHUFFLE:
          if (values < 1 || value != element_bytes_)
            return DamagedHdf5("its bytes are shuffled with another size than that of its numbers");
          filters_.push_back(Hdf5Filter::kShuffle);
          break;
        case H5Z_FILTER_DEFLATE: filters_.push_back(Hdf5Filter::kDeflate); break;
        case H5Z_FILTER_FLETCHER32: filters_.push_back(Hdf5Filter::kFletcher32); break;
        default:
          return absl::UnimplementedError(absl::StrCat(
              "its filter ", filter,
              " is not supported; save it without compression, or with only gzip, shuffle and fletcher32"));
      }
    }
    return absl::OkStatus();
  }

  // The elements of the chunk in the file's type; empty: it is not stored.
  absl::StatusOr<Bytes> Stored(const std::vector<hsize_t>& at) const {
    hsize_t size = 0;
    haddr_t place = HADDR_UNDEF;
    if (H5Dget_chunk_info_by_coord(dataset_, at.data(), nullptr, &place, &size) < 0)
      return DamagedHdf5("its chunks cannot be found");
    if (size > StoredChunkBytesMax(chunk_bytes_)) return DamagedHdf5("a chunk is stored in more bytes than it has");
    Bytes bytes(size);
    if (place == HADDR_UNDEF || size == 0) return Bytes();
    uint32_t skipped = 0;
    if (H5Dread_chunk(dataset_, H5P_DEFAULT, at.data(), &skipped, bytes.data()) < 0)
      return DamagedHdf5("a chunk cannot be read");
    return UndoHdf5Filters(std::move(bytes), filters_, skipped, element_bytes_, chunk_bytes_);
  }

  absl::Status ReadChunk(const std::vector<hsize_t>& at) {
    CAIRN_ASSIGN_OR_RETURN(Bytes bytes, Stored(at));
    const size_t count = chunk_bytes_ / element_bytes_;
    if (!bytes.empty()) {
      bytes.resize(count * std::max(element_bytes_, sizeof(float)));  // converted in place
      if (H5Tconvert(type_, H5T_NATIVE_FLOAT, count, bytes.data(), nullptr, H5P_DEFAULT) < 0) {
        return DamagedHdf5("its numbers cannot be converted to float32");
      }
    }
    Place(at, bytes);
    return absl::OkStatus();
  }

  // Copies the part of the chunk that is inside the array, row by row.
  void Place(const std::vector<hsize_t>& at, const Bytes& bytes) {
    const size_t last = shape_.size() - 1;
    std::vector<hsize_t> inside(shape_.size()), row(shape_.size(), 0), step(shape_.size(), 1);
    for (size_t d = 0; d <= last; ++d) inside[d] = std::min(chunk_[d], shape_[d] - at[d]);
    const size_t numbers = inside[last];
    step[last] = numbers;
    do {
      size_t from = 0, to = 0;
      for (size_t d = 0; d <= last; ++d) {
        from = from * chunk_[d] + row[d];
        to = to * shape_[d] + at[d] + row[d];
      }
      if (bytes.empty()) {
        std::fill_n(out_.begin() + static_cast<ptrdiff_t>(to), numbers, fill_);
      } else {
        std::memcpy(out_.data() + to, bytes.data() + from * sizeof(float), numbers * sizeof(float));
      }
    } while (Advance(row, step, inside));
  }

  const hid_t dataset_, plist_, type_;
  const std::vector<hsize_t> shape_;
  const absl::Span<float> out_;
  std::vector<hsize_t> chunk_;
  size_t element_bytes_ = 0;
  uint64_t chunk_bytes_ = 0;
  float fill_ = 0;
  std::vector<Hdf5Filter> filters_;
};

}  // namespace

absl::Status ReadHdf5Chunks(hid_t dataset, hid_t plist, hid_t type, const Shape& shape, absl::Span<float> out) {
  return out.empty() ? absl::OkStatus() : ChunkReader(dataset, plist, type, shape, out).Read();
}

}  // namespace cairn
