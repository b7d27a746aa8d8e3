# The libraries that ours link, as targets seqlab::<name>: the system's, or those in SEQLAB_LIBRARY_FOLDER. The
# installed package's configuration includes this file too.
function(seqlab_find_library name)
  find_library(SEQLAB_LIBRARY_${name} NAMES ${ARGN} HINTS ${SEQLAB_LIBRARY_FOLDER})
  mark_as_advanced(SEQLAB_LIBRARY_${name})
  if(SEQLAB_LIBRARY_${name} AND NOT TARGET seqlab::${name})
    add_library(seqlab::${name} UNKNOWN IMPORTED)
    set_target_properties(seqlab::${name} PROPERTIES IMPORTED_LOCATION ${SEQLAB_LIBRARY_${name}})
  endif()
endfunction()

# Static ones first: a folder of unpacked packages has no others, but of sentencepiece and onig, of which Debian has no static one.
macro(seqlab_find_libraries)
  find_package(Threads REQUIRED)
  seqlab_find_library(sentencepiece libsentencepiece.so.0 sentencepiece)
  seqlab_find_library(crypto libcrypto.a crypto)
  seqlab_find_library(onig libonig.so.5 onig)
  seqlab_find_library(utf8proc libutf8proc.a utf8proc)
endmacro()

# Those of seqlab_proof besides.
macro(seqlab_find_proof_libraries)
  seqlab_find_library(minizip libminizip.a minizip)
  seqlab_find_library(z libz.a z)
endmacro()
