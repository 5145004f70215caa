// Splits the bytes of a server into units that can be sent twice or in another order: the frames of a
// WebSocket, or the chunks of a body.

export class Units {
  #bytes = Buffer.alloc(0);
  #cut = (bytes) => this.#head(bytes);

  /** The units that the bytes complete, as {bytes, isWhole}. A head and a body of known length are not whole units. */
  *split(data) {
    this.#bytes = Buffer.concat([this.#bytes, data]);
    for (let unit; this.#bytes.length > 0 && (unit = this.#cut(this.#bytes));) {
      this.#bytes = this.#bytes.subarray(unit.size);
      yield { bytes: unit.bytes, isWhole: unit.isWhole };
    }
  }

  #head(bytes) {
    const end = bytes.indexOf("\r\n\r\n");
    if (end < 0) return null;
    const text = bytes.subarray(0, end).toString("latin1");
    if (/^HTTP\/1\.1 101 /.test(text)) this.#cut = frame;
    else if (/^transfer-encoding: *chunked/im.test(text)) this.#cut = chunk;
    else this.#cut = (rest) => cutAt(rest, rest.length, false);
    return cutAt(bytes, end + 4, false);
  }
}

function cutAt(bytes, size, isWhole = true) {
  return size <= bytes.length ? { bytes: bytes.subarray(0, size), size, isWhole } : null;
}

/** A frame of a server has no mask. A control frame is not repeated, because a close ends the connection. */
function frame(bytes) {
  const short = bytes.length < 2 ? 126 : bytes[1] & 0x7f;
  const head = short < 126 ? 2 : short === 126 ? 4 : 10;
  if (bytes.length < head) return null;
  const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  return cutAt(bytes, head + length, (bytes[0] & 0x08) === 0);
}

function chunk(bytes) {
  const end = bytes.indexOf("\r\n");
  const length = parseInt(bytes.subarray(0, end).toString("latin1"), 16);
  return end < 0 ? null : cutAt(bytes, end + 2 + length + 2, length > 0);
}
