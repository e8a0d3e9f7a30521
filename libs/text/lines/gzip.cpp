// Unpacks gzip by zlib. A file may be several streams, one after the other, as bgzip writes them and `cat`
// makes them.
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "lines/unpacking.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

class GzipUnpacking final : public Unpacking {
 public:
  GzipUnpacking() {
    constexpr int largest_window = 15, gzip_alone = 16;
    const int status = inflateInit2(&stream_, largest_window + gzip_alone);
    PRUN_CHECK(status == Z_OK, "zlib does not start: ", status);
  }
  GzipUnpacking(const GzipUnpacking&) = delete;
  GzipUnpacking& operator=(const GzipUnpacking&) = delete;
  ~GzipUnpacking() override { inflateEnd(&stream_); }

  std::string step(std::span<const char>& packed, std::span<char>& room) override {
    if (whole_) inflateReset(&stream_);
    constexpr std::size_t most = std::numeric_limits<uInt>::max();
    const auto in = static_cast<uInt>(std::min(packed.size(), most));
    const auto out = static_cast<uInt>(std::min(room.size(), most));
    // zlib reads from it only; its structure is older than const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = in;
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = out;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    packed = packed.subspan(in - stream_.avail_in);
    room = room.subspan(out - stream_.avail_out);
    whole_ = status == Z_STREAM_END;
    if (status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR) return {};
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    return "is damaged or no gzip (" + std::string(stream_.msg ? stream_.msg : zError(status)) + ")";
  }

  bool whole() const override { return whole_; }

 private:
  z_stream stream_{};
  bool whole_ = false;
};

}  // namespace

std::unique_ptr<Unpacking> unpack_gzip(std::string_view) { return std::make_unique<GzipUnpacking>(); }

}  // namespace prun
