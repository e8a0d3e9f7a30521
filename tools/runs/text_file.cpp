#include "runs/text_file.hpp"

#include <algorithm>
#include <fstream>

namespace prun {

std::string text_in(const std::filesystem::path& file, std::int64_t most) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return "";
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const std::int64_t size = in.tellg();
  if (size <= 0) return "";
  std::string text(static_cast<std::size_t>(std::min(size, most)), '\0');
  in.seekg(size - static_cast<std::int64_t>(text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

}  // namespace prun
