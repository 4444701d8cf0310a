// Augmented examples, for augment_numpy.py, which computes them by its own formulas.
//
//   augment_driver STEPS HEIGHT WIDTH CHANNELS SEED PASS COUNT IN OUT
//
// STEPS: `augmentation` of a job's data as text. IN: the picture (raw float32); OUT: what examples 0 .. COUNT - 1 are
// when each of them is that picture.
#include <google/protobuf/text_format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "common/data/augment.h"

int main(int argc, char** argv) {
  if (argc != 10) return 2;
  cairn::v1::Data data;
  if (!google::protobuf::TextFormat::ParseFromString(argv[1], &data)) return 2;
  const cairn::Shape shape = {std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
  const auto augmenter = cairn::Augmenter::Make(data, shape, std::strtoull(argv[5], nullptr, 10));
  if (!augmenter.ok() || *augmenter == nullptr) {
    std::printf("%s\n", std::string(augmenter.status().message()).c_str());
    return 1;
  }
  const size_t size = static_cast<size_t>(cairn::NumElements(shape));
  std::vector<float> picture(size);
  const auto bytes = static_cast<std::streamsize>(size * sizeof(float));
  std::ifstream(argv[8], std::ios::binary).read(reinterpret_cast<char*>(picture.data()), bytes);
  std::ofstream out(argv[9], std::ios::binary);
  for (uint64_t example = 0; example < std::strtoull(argv[7], nullptr, 10); ++example) {
    std::vector<float> numbers = picture;
    (*augmenter)->Apply(std::strtoull(argv[6], nullptr, 10), example, numbers.data());
    out.write(reinterpret_cast<const char*>(numbers.data()), bytes);
  }
  return out ? 0 : 1;
}
