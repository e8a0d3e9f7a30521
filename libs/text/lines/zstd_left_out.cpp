// Replaces zstd.cpp where libzstd is not there to build with.
#include "lines/unpacking.hpp"
#include "prun/error.hpp"

namespace prun {

std::unique_ptr<Unpacking> unpack_zstd(std::string_view file) {
  throw_error(ErrorCode::unsupported, file,
              ": this prun was built without libzstd, which reads zstd; unpack it with unzstd, or install "
              "libzstd with its headers (Debian: libzstd-dev) and build again");
}

}  // namespace prun
