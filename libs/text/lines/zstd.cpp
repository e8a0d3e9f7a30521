// Unpacks zstd by libzstd. A file may be several frames, one after the other, as pzstd and seekable files
// have them.
#include <zstd.h>
#include <zstd_errors.h>

#include <new>

#include "lines/unpacking.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

class ZstdUnpacking final : public Unpacking {
 public:
  ZstdUnpacking() : stream_(ZSTD_createDStream()) {
    if (!stream_) throw std::bad_alloc();
  }
  ZstdUnpacking(const ZstdUnpacking&) = delete;
  ZstdUnpacking& operator=(const ZstdUnpacking&) = delete;
  ~ZstdUnpacking() override { ZSTD_freeDStream(stream_); }

  std::string step(std::span<const char>& packed, std::span<char>& room) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    ZSTD_outBuffer out{room.data(), room.size(), 0};
    const std::size_t status = ZSTD_decompressStream(stream_, &out, &in);
    packed = packed.subspan(in.pos);
    room = room.subspan(out.pos);
    whole_ = status == 0;
    if (!ZSTD_isError(status)) return {};
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(status);
    if (code == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (code == ZSTD_error_frameParameter_windowTooLarge)
      return "was compressed with a window of more than 128 MiB (zstd without --long or --ultra takes less)";
    return std::string("is damaged or no zstd (") + ZSTD_getErrorName(status) + ")";
  }

  bool whole() const override { return whole_; }

 private:
  ZSTD_DStream* stream_;
  bool whole_ = false;
};

}  // namespace

std::unique_ptr<Unpacking> unpack_zstd(std::string_view) { return std::make_unique<ZstdUnpacking>(); }

}  // namespace prun
