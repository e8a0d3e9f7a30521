// Compresses texts as files have them, by the libraries that the build found: PRUN_TEST_GZIP and
// PRUN_TEST_ZSTD are 1 or 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "prun/error.hpp"
#if PRUN_TEST_GZIP
#include <zlib.h>
#endif
#if PRUN_TEST_ZSTD
#include <zstd.h>
#endif

namespace prun::test {

#if PRUN_TEST_GZIP
inline std::string gzip_of(std::string_view text) {
  constexpr int window = 15, with_gzips_header = 16, memory = 8;
  z_stream stream{};
  PRUN_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window + with_gzips_header, memory,
                          Z_DEFAULT_STRATEGY) == Z_OK,
             "zlib does not start");
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  PRUN_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib does not end");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}
#endif

#if PRUN_TEST_ZSTD
// Compresses with a checksum, as the program zstd does.
inline std::string zstd_of(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  if (window_log) ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string packed(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  // This is not done in one go: then the frame would say how large the text is, and take no larger window
  // than that.
  while (in.pos < in.size) ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);
  const std::size_t left = ZSTD_compressStream2(context, &out, &in, ZSTD_e_end);
  PRUN_CHECK(left == 0, "zstd does not end");
  packed.resize(out.pos);
  ZSTD_freeCCtx(context);
  return packed;
}
#endif

struct PackedText {
  std::string ending, bytes;
};

// Returns the text in every way that this build can read.
inline std::vector<PackedText> packed_ways([[maybe_unused]] std::string_view text) {
  std::vector<PackedText> ways;
#if PRUN_TEST_GZIP
  ways.push_back({".gz", gzip_of(text)});
#endif
#if PRUN_TEST_ZSTD
  ways.push_back({".zst", zstd_of(text)});
#endif
  return ways;
}

}  // namespace prun::test
