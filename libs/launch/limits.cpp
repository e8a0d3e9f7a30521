#include "launch/limits.hpp"

#include <cerrno>
#include <cstring>

namespace prun {
namespace {

const char* remedy_for(int error) {
  switch (error) {
    case EMFILE: return "; raise the limit on open files (ulimit -n)";
    case ENFILE: return "; this machine has too many open files";
    case EAGAIN:
      return "; raise the limit on processes and threads (ulimit -u, or pids.max of the container)";
    case ENOMEM:
      return "; raise the limit on address space (ulimit -v) or on the container's memory, or free memory";
    case EFBIG: return "; raise the limit on the size of files (ulimit -f)";
    default: return "";
  }
}

}  // namespace

std::string refusal_text(int error) { return std::string(std::strerror(error)) + remedy_for(error); }

}  // namespace prun
