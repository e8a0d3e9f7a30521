#include "address_space.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "prun/error.hpp"

namespace prun::nvme {

AddressSpace::AddressSpace(std::int64_t bytes) : bytes_(std::max<std::int64_t>(bytes, 1)) {
  void* const begin = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED)
    throw_error(ErrorCode::unsupported, "tier nvme: the system has no ", bytes_, " addresses left for it (",
                std::strerror(errno), "); raise the limit on this process's address space (ulimit -v)");
  begin_ = static_cast<std::byte*>(begin);
}

AddressSpace::~AddressSpace() { ::munmap(begin_, static_cast<std::size_t>(bytes_)); }

}  // namespace prun::nvme
