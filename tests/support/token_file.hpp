// Writes tokens in llm.c's format: 256 words of header, then uint16 tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

namespace prun::test {

inline std::filesystem::path write_tokens(const std::filesystem::path& path,
                                          const std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), 1024);
  out.write(reinterpret_cast<const char*>(narrow.data()), static_cast<std::streamsize>(narrow.size() * 2));
  return path;
}

}  // namespace prun::test
