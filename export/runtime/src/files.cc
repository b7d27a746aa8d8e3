#include "files.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include "error.h"

namespace seqlab {
namespace {

namespace fs = std::filesystem;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) Refuse("libcrypto has no SHA-256");
  }

  void Add(const char* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }

  std::string Digits() {
    std::array<unsigned char, 32> digest{};
    EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
    return Hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

std::ifstream Opened(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Refuse(path.string(), " cannot be read");
  return file;
}

}  // namespace

std::string ReadFile(const fs::path& path, size_t most) {
  std::ifstream file = Opened(path);
  std::string content;
  for (std::istreambuf_iterator<char> next(file), end; next != end && content.size() < most; ++next) content += *next;
  if (file.bad()) Refuse(path.string(), " cannot be read");
  return content;
}

std::string Hex(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

std::string Sha256OfText(std::string_view text) {
  Sha256 hash;
  hash.Add(text.data(), text.size());
  return hash.Digits();
}

std::string Sha256OfFile(const fs::path& path, int64_t offset, int64_t length) {
  std::ifstream file = Opened(path);
  file.seekg(offset);
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (length > 0 && file) {
    file.read(buffer.data(), std::min(length, static_cast<int64_t>(buffer.size())));
    hash.Add(buffer.data(), static_cast<size_t>(file.gcount()));
    length -= file.gcount();
  }
  if (file.bad()) Refuse(path.string(), " cannot be read");
  return hash.Digits();
}

std::vector<std::string> FilesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator next(folder, error), end; !error && next != end; next.increment(error)) {
    const bool plain = next->is_symlink() || !next->is_directory();
    if (plain) names.push_back(next->path().lexically_relative(folder).generic_string());
  }
  if (error) Refuse(folder.string(), " cannot be read: ", error.message());
  return names;
}

bool IsInside(const std::string& name) {
  const fs::path path(name);
  const bool climbs = std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
  const bool odd = name.find('\\') != std::string::npos || name.find('\0') != std::string::npos;
  return !name.empty() && name != "." && !path.is_absolute() && !climbs && !odd;
}

std::string Elsewhere(const fs::path& folder, const std::string& name) {
  std::error_code error;
  const fs::path path = folder / name;
  if (!fs::is_regular_file(path, error)) return "it is missing";
  const fs::path real = fs::canonical(path, error), home = fs::canonical(folder, error);
  if (error) return "it cannot be read: " + error.message();
  const bool inside = std::mismatch(home.begin(), home.end(), real.begin(), real.end()).first == home.end();
  return inside ? "" : "it is a link out of the bundle";
}

std::string Damage(const fs::path& folder, const std::string& name, const std::string& sha256) {
  if (std::string elsewhere = Elsewhere(folder, name); !elsewhere.empty()) return elsewhere;
  return Sha256OfFile(folder / name) == sha256 ? "" : "its sha256 is not the manifest's";
}

}  // namespace seqlab
