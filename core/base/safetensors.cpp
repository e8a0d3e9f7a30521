// Maps a safetensors file into memory and checks its bytes.
#include "base/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/crc32c.hpp"
#include "base/safetensors_format.hpp"

namespace prun {

void SafetensorsFile::Unmap::operator()(const std::byte* data) const {
  ::munmap(const_cast<std::byte*>(data), size);
}

SafetensorsFile::Map SafetensorsFile::map_file(const std::filesystem::path& path) {
  // A pipe without a writer must not block us; a socket cannot even be opened.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open() && errno != ENXIO) throw_storage_error("open", path, errno);
  struct stat status = {};
  if (fd.is_open() && ::fstat(fd.get(), &status) != 0) throw_storage_error("look at", path, errno);
  if (!S_ISREG(status.st_mode)) throw_error(ErrorCode::bad_input, path.string(), ": it is not a file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return Map(nullptr, Unmap{0});
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) throw_storage_error("map", path, errno);
  return Map(static_cast<const std::byte*>(data), Unmap{size});
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      map_(map_file(path)),
      index_(read_safetensors_index(file(), path.string())),
      checksums_(check_header()) {
  std::size_t chunks = 0;
  for (const SafetensorsEntry& entry : entries()) {
    first_chunk_.push_back(chunks);
    chunks += safetensors::chunks_of(entry.end - entry.begin);
  }
  if (has_checksums() &&
      index_.metadata().find(safetensors::data_key)->second.size() != chunks * safetensors::checksum_digits)
    throw_error(ErrorCode::bad_input, path.string(), " has checksums of other data than it holds");
}

// Returns the header's checksum as it should be and is; empty if the file has none.
std::string SafetensorsFile::check_header() const {
  const auto& metadata = index_.metadata();
  const auto written = metadata.find(safetensors::header_key);
  if (written == metadata.end() && !metadata.contains(safetensors::data_key)) return {};
  const std::uint64_t data_begin = entries().empty() ? file().size() : entries().front().begin;
  std::string header(reinterpret_cast<const char*>(file().data()), data_begin);
  const std::size_t place = safetensors::place_of(header, safetensors::header_key);
  std::string counted;
  if (place <= header.size() - safetensors::checksum_digits) {
    header.replace(place, safetensors::checksum_digits, safetensors::checksum_digits, '0');
    counted = crc32c_text(crc32c(std::as_bytes(std::span(header))));
  }
  if (written == metadata.end() || !metadata.contains(safetensors::data_key) || written->second != counted)
    throw_error(ErrorCode::bad_input, path_.string(),
                ": the header does not have the checksum it was written with; the file is damaged");
  return counted;
}

void SafetensorsFile::check(const SafetensorsEntry& entry, std::uint64_t first_byte,
                            std::uint64_t end_byte) const {
  PRUN_CHECK(has_checksums(), path_.string(), " has no checksums");
  const std::string& sums = index_.metadata().find(safetensors::data_key)->second;
  const std::size_t first = first_chunk_[static_cast<std::size_t>(&entry - entries().data())];
  const std::uint64_t chunks = safetensors::chunks_of(std::min(end_byte, entry.end - entry.begin));
  for (std::uint64_t chunk = first_byte / safetensors::chunk_bytes; chunk < chunks; ++chunk) {
    const std::uint64_t begin = entry.begin + chunk * safetensors::chunk_bytes;
    const std::uint64_t end = std::min(begin + safetensors::chunk_bytes, entry.end);
    const std::string counted = crc32c_text(crc32c(file().subspan(begin, end - begin)));
    if (sums.compare((first + chunk) * safetensors::checksum_digits, safetensors::checksum_digits, counted) !=
        0)
      throw_error(ErrorCode::bad_input, path_.string(), ": tensor '", safetensors::printable(entry.name),
                  "': bytes ", begin, " to ", end - 1,
                  " of the file are not those that were written; it is damaged");
  }
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const SafetensorsEntry* found = index_.find(name);
  if (found == nullptr) {
    throw_error(ErrorCode::not_found, path_.string(), ": there is no tensor '", safetensors::printable(name),
                "' among its ", entries().size());
  }
  return *found;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  PRUN_CHECK(entry.begin <= entry.end && entry.end <= file().size(), "entry of another file");
  return file().subspan(entry.begin, entry.end - entry.begin);
}

// Releases whole chunks, as check() has read them.
void SafetensorsFile::let_go(const SafetensorsEntry& entry, std::uint64_t first, std::uint64_t end) const {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin =
      (entry.begin + first / safetensors::chunk_bytes * safetensors::chunk_bytes) / page * page;
  const std::uint64_t last =
      std::min(entry.begin + safetensors::chunks_of(end) * safetensors::chunk_bytes, entry.end);
  if (begin < last) ::madvise(const_cast<std::byte*>(map_.get()) + begin, last - begin, MADV_DONTNEED);
}

}  // namespace prun
