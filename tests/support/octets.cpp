// Reads a file byte by byte, as a third party's plugin would: only its note says that its tokens are bytes.
#include <fstream>
#include <iterator>
#include <string>

#include "prun/plugin.hpp"

namespace prun {
namespace {

class Octets final : public Data {
 public:
  explicit Octets(const Options& options) {
    std::ifstream file(std::string(options.text("path")), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  DataInfo open(std::int64_t seq) override {
    seq_ = seq;
    const auto samples = (static_cast<std::int64_t>(bytes_.size()) - 1) / seq;
    return {samples, samples * seq, 256};
  }
  void read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) override {
    for (std::int64_t i = 0; i < seq_; ++i) {
      tokens[i] = byte(index * seq_ + i);
      targets[i] = byte(index * seq_ + i + 1);
    }
  }

 private:
  std::int32_t byte(std::int64_t at) const {
    return static_cast<unsigned char>(bytes_[static_cast<std::size_t>(at)]);
  }

  std::string bytes_;
  std::int64_t seq_ = 0;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(data, prun::Octets, "octets", "0.1.0", "The bytes of a file", "token_bytes=1; tokens=bytes",
            "path | string | required | | The file\n");
