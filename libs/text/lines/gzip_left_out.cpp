// Replaces gzip.cpp where zlib is not there to build with.
#include "lines/unpacking.hpp"
#include "prun/error.hpp"

namespace prun {

std::unique_ptr<Unpacking> unpack_gzip(std::string_view file) {
  throw_error(ErrorCode::unsupported, file,
              ": this prun was built without zlib, which reads gzip; unpack it with gunzip, or install zlib "
              "with its headers (Debian: zlib1g-dev) and build again");
}

}  // namespace prun
